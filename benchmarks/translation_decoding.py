"""Greedy and beam search with random weights and forced lengths.

Random weights end texts at random places, and at other places for each toolkit. So every sentence is made to end after
as many tokens as its target in the corpus has: forbidden to end before, made to end there, by each toolkit's own means
(ours by the longest length of each sentence, Hugging Face's by a logits processor). As in a trained model, the
sentences of a batch end at different steps, and what a toolkit saves then is measured. With a beam, where Hugging Face's
search goes on after such an end, all sentences of a batch are as long as the mean of its targets, for every toolkit; for
CTranslate2 always. The encoder is part of the time, tokenizing is not.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from translation_training import marian_network
from translation_work import BOS, EOS, PAD, Batch, Sizes

__all__ = ["DECODERS", "decode"]

Decode = Callable[[Batch, Tensor], int]
"""A batch, (B,) tokens to write for each sentence, the end included -> number of tokens written, over all sentences."""


def polyformer(sizes: Sizes, beam: int) -> Decode:
    """Ours, as `tasks/translation.py` uses it; the end is forbidden until the search forces it with the last token."""
    from polyformer.decoding import Search, Symbols, beam_search
    from polyformer.models import EncoderDecoder, EncoderDecoderOptions
    from polyformer.training.memory import keep_freed_memory

    keep_freed_memory()
    options = EncoderDecoderOptions(d_model=sizes.d_model, num_heads=sizes.num_heads, dropout=sizes.dropout)
    network = EncoderDecoder(sizes.vocabulary, sizes.vocabulary, options).eval()
    symbols, search = Symbols(begin=BOS, end=EOS, never=(PAD, BOS, EOS)), Search(beam=beam)

    @torch.inference_mode()
    def run(batch: Batch, lengths: Tensor) -> int:
        memory = network.encode(batch.source, batch.keep)
        found = beam_search(network.start(memory), lengths, search, symbols)
        return sum(len(hypotheses[0].tokens) + 1 for hypotheses in found)

    return run


def transformers(sizes: Sizes, beam: int) -> Decode:
    """Hugging Face's `generate` with its cache, Marian architecture."""
    network = marian_network(sizes).eval()

    @torch.inference_mode()
    def run(batch: Batch, lengths: Tensor) -> int:
        written = network.generate(
            input_ids=batch.source,
            attention_mask=(batch.source != PAD).long(),
            num_beams=beam,
            do_sample=False,
            use_cache=True,
            early_stopping=beam > 1,
            max_new_tokens=int(lengths.max()),
            **({"min_new_tokens": int(lengths.max())} if beam > 1 else {"logits_processor": [EndAt(lengths)]}),
        )
        return int((written[:, 1:] != PAD).sum())

    return run


class EndAt:
    """A logits processor of Hugging Face's `generate`: each row ends with its own number of tokens.

    Args:
        lengths: (N,) tokens of each row, the end included.
    """

    def __init__(self, lengths: Tensor) -> None:
        self.lengths = lengths

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        ends = (self.lengths == input_ids.shape[1]).unsqueeze(1)  # the first id is the start symbol
        is_end = torch.arange(scores.shape[1]) == EOS
        return scores.masked_fill(ends != is_end, -torch.inf)


def ctranslate2(sizes: Sizes, beam: int, compute_type: str = "float32") -> Decode:
    """CTranslate2, an inference engine in C++: the same Marian architecture, converted."""
    import ctranslate2 as engine

    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder) / "model")
        subprocess.run([sys.executable, __file__, target], check=True, stdout=subprocess.DEVNULL)
        translator = engine.Translator(
            target, device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=torch.get_num_threads()
        )

    def run(batch: Batch, lengths: Tensor) -> int:
        length = round(float(lengths.float().mean()))
        source = [[str(token) for token in row if token != PAD] for row in batch.source.tolist()]
        found = translator.translate_batch(source, beam_size=beam, min_decoding_length=length, max_decoding_length=length)
        return sum(len(result.hypotheses[0]) for result in found)

    return run


def ctranslate2_int8(sizes: Sizes, beam: int) -> Decode:
    """The same with weights in 8 bits, which changes results a little."""
    return ctranslate2(sizes, beam, "int8")


DECODERS: dict[str, Callable[[Sizes, int], Decode]] = {
    "polyformer": polyformer,
    "transformers": transformers,
    "ctranslate2": ctranslate2,
    "ctranslate2-int8": ctranslate2_int8,
}


def decode(name: str, batches: list[Batch], warm_up: int, beam: int) -> dict[str, object]:
    """Decodes all batches, the first ``warm_up`` of them untimed: sentences per second."""
    run = DECODERS[name](Sizes(), beam)
    seconds, written = [], []
    for batch in batches:
        lengths = (batch.labels != PAD).sum(dim=1)
        if beam > 1:
            lengths = torch.full_like(lengths, round(float(lengths.float().mean())))
        begin = time.perf_counter()
        written.append(run(batch, lengths))
        seconds.append(time.perf_counter() - begin)
    sentences = [len(batch.source) for batch in batches]
    rate = sum(sentences[warm_up:]) / sum(seconds[warm_up:])
    return {"rate": rate, "written": sum(written[warm_up:]), "seconds": seconds}


def convert(target: str) -> None:
    """Writes a random Marian network in CTranslate2's format; in a process of its own, to keep its memory apart."""
    from ctranslate2.converters.transformers import BartLoader

    network = marian_network(Sizes())
    network.config.normalize_before = network.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(network)
    words = [str(token) for token in range(Sizes.vocabulary)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = str(BOS), str(EOS), "3"
    spec.config.decoder_start_token = str(BOS)
    spec.validate()
    Path(target).mkdir(parents=True, exist_ok=True)
    spec.save(target)


if __name__ == "__main__":
    convert(sys.argv[1])
