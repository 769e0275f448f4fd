"""Decodes whose every probability is known, and searches over them that are too simple to be wrong."""

from itertools import product

import torch
from torch import Tensor

from polyformer.decoding import Symbols

BEGIN, END, VOCABULARY = 0, 1, 5
SYMBOLS = Symbols(BEGIN, END, never=(BEGIN,))


class Toy:
    """A language model whose logits are a fixed random function of the sentence and all its tokens so far.

    Args:
        sentences: Names of the sentences in the batch; the same name always means the same probabilities.
        seed: Which random function.
        spread: Standard deviation of the logits.
    """

    def __init__(self, sentences: list[int], seed: int = 0, spread: float = 2.0) -> None:
        self.seed, self.spread = seed, spread
        self.rows: list[tuple[int, tuple[int, ...]]] = [(sentence, ()) for sentence in sentences]
        self.widths: list[int] = []
        self.lengths: list[int] = []
        self.reordered = 0

    def logits(self, sentence: int, prefix: tuple[int, ...]) -> Tensor:
        """(V,) logits of the token after ``prefix``, which begins with BEGIN."""
        key = hash((self.seed, sentence, prefix)) % (1 << 62)
        return self.spread * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(key))

    def step(self, tokens: Tensor) -> Tensor:
        self.widths.append(tokens.shape[0])
        self.lengths.append(tokens.shape[1])
        self.rows = [(name, (*prefix, *new)) for (name, prefix), new in zip(self.rows, tokens.tolist(), strict=True)]
        return torch.stack([self.logits(*row) for row in self.rows])

    def reorder(self, rows: Tensor) -> None:
        self.reordered += 1
        self.rows = [self.rows[row] for row in rows.tolist()]


class Ending(Toy):
    """Ends sentence n after n tokens, and is sure of everything."""

    def logits(self, sentence: int, prefix: tuple[int, ...]) -> Tensor:
        logits = torch.full((VOCABULARY,), -30.0)
        logits[2:] = torch.tensor([1.0, 0.5, 0.0])
        logits[END] = 30.0 if len(prefix) > sentence else -30.0
        return logits


def log_probability(toy: Toy, sentence: int, tokens: list[int]) -> float:
    """Of ``tokens`` and the end."""
    text = (BEGIN, *tokens, END)
    steps = [toy.logits(sentence, text[:place]).log_softmax(-1)[text[place]] for place in range(1, len(text))]
    return float(torch.stack(steps).sum())


def everything(toy: Toy, sentence: int, max_length: int, alpha: float) -> list[tuple[float, float, list[int]]]:
    """(score, log-probability, tokens) of every text of at most ``max_length`` tokens, the end included, best first."""
    letters = [token for token in range(VOCABULARY) if token not in (BEGIN, END)]
    texts = [list(text) for length in range(max_length) for text in product(letters, repeat=length)]
    scored = []
    for text in texts:
        value = log_probability(toy, sentence, text)
        scored.append((value / ((5 + len(text) + 1) / 6) ** alpha, value, text))
    return sorted(scored, reverse=True)


def greedy(toy: Toy, sentence: int, max_length: int) -> list[int]:
    """The likeliest token at every step, until it is the end."""
    tokens: list[int] = []
    while len(tokens) < max_length - 1:
        logits = toy.logits(sentence, (BEGIN, *tokens))
        logits[BEGIN] = -torch.inf
        if (best := int(logits.argmax())) == END:
            break
        tokens.append(best)
    return tokens


Text = tuple[float, tuple[int, ...]]


def continuations(toy: Toy, sentence: int, texts: list[Text], longest: bool) -> list[Text]:
    """Every text one token longer than one of ``texts``, the likeliest first; if ``longest``, only those that end."""
    longer = []
    for value, prefix in texts:
        logits = toy.logits(sentence, prefix).log_softmax(-1).tolist()
        tokens = [END] if longest else [token for token in range(VOCABULARY) if token != BEGIN]
        longer += [(value + logits[token], (*prefix, token)) for token in tokens]
    return sorted(longer, reverse=True)


def beam_by_hand(toy: Toy, sentence: int, max_length: int, beam: int, alpha: float) -> list[list[int]]:
    """Beam search over one sentence with lists: the same rules as the real one, none of its tricks. Best first."""
    texts: list[Text] = [(0.0, (BEGIN,))]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, max_length + 1):
        best = continuations(toy, sentence, texts, length == max_length)[: 2 * beam]
        penalty = ((5 + length) / 6) ** alpha
        ended = [(value / penalty, list(text[1:-1])) for value, text in best[:beam] if text[-1] == END]
        finished = sorted([*finished, *ended], reverse=True)[:beam]
        texts = [(value, text) for value, text in best if text[-1] != END]
        if not texts or (len(finished) == beam and texts[0][0] / penalty <= finished[-1][0]):
            break
        texts = texts[:beam]
    return [text for _, text in sorted(finished, reverse=True)]
