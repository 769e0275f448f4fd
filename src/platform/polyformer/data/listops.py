"""ListOps: nested lists of digits under operators, and the digit that each comes to; made on the spot."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from random import Random

from polyformer.data.batches import BatchSettings
from polyformer.data.cutting import TextLimits
from polyformer.data.labelled import LabelledData
from polyformer.text import Assets, TokenizerSettings, train_tokenizer

__all__ = ["ExpressionLimits", "ListOps", "draw_expressions"]

DIGITS = "0123456789"
END = "]"
OPERATOR_SHARE = 0.25  # of the arguments are lists themselves
SAMPLE = 500  # expressions in which the digits are counted
PATIENCE = 20_000  # expressions of another length, or seen before, after which there seem to be no more


def _median(values: Sequence[int]) -> int:
    """The middle one; of an even number of values the mean of the middle two, rounded down."""
    ordered, count = sorted(values), len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) // 2


OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": _median,
    "[SM": lambda values: sum(values) % 10,
}
"""An operator's word -> what it makes of its arguments: least, greatest, median, and sum modulo 10."""


@dataclass(frozen=True)
class ExpressionLimits:
    """How large expressions are.

    Args:
        min_length: the fewest tokens; each operator, digit and closing bracket is one.
        max_length: the most tokens.
        max_depth: the most levels, of which the last one has digits only.
        max_args: the most arguments of an operator; the fewest are two.

    >>> ExpressionLimits(min_length=5, max_length=20).max_args
    10
    """

    min_length: int = 500
    max_length: int = 2000
    max_depth: int = 10
    max_args: int = 10

    def __post_init__(self) -> None:
        if not 4 <= self.min_length <= self.max_length:
            raise ValueError(
                f"`data.min_length` must be from 4 to `data.max_length` ({self.max_length}), but is {self.min_length}"
            )
        for name, least in (("max_depth", 2), ("max_args", 2)):
            if not least <= getattr(self, name) <= 100:
                raise ValueError(f"`data.{name}` must be from {least} to 100, but is {getattr(self, name)}")


def draw_expressions(limits: ExpressionLimits, seed: str = "") -> Iterator[tuple[str, int]]:
    """Expressions and their values, each expression once, without end; they follow from the limits and the seed alone.

    Raises ValueError where no more are found within the limits.

    >>> next(draw_expressions(ExpressionLimits(min_length=8, max_length=14), "arena"))
    ('[MIN 7 4 9 [MAX 0 1 2 ] ]', 2)
    """
    chance, seen, rejected = Random(seed).random, set[bytes](), 0
    while rejected < PATIENCE:
        words: list[str] = []
        value = _draw(words, 1, limits, chance)
        text = " ".join(words)
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        if limits.min_length <= len(words) <= limits.max_length and digest not in seen:
            rejected = 0
            seen.add(digest)
            yield text, value
        else:
            rejected += 1
    raise ValueError(
        f"only {len(seen):,} different expressions of {limits.min_length} to {limits.max_length} tokens were found: ask for "
        "fewer, let `data.min_length` and `data.max_length` lie further apart, or change `data.max_depth` or `data.max_args`"
    )


def _draw(words: list[str], level: int, limits: ExpressionLimits, chance: Callable[[], float]) -> int:
    """Adds an expression to the words, and returns its value; what is too long is given up, and has none."""
    if len(words) > limits.max_length:
        return 0
    if level == limits.max_depth or (level > 1 and chance() >= OPERATOR_SHARE):
        value = int(10 * chance())
        words.append(DIGITS[value])
        return value
    operator = NAMES[int(len(NAMES) * chance())]
    count = 2 + int((limits.max_args - 1) * chance())
    words.append(operator)
    values = [_draw(words, level + 1, limits, chance) for _ in range(count)]
    words.append(END)
    return OPERATORS[operator](values)


class ListOps(LabelledData):
    """Nested lists such as `[MAX 2 9 [MIN 4 7 ] 0 ]`, and the digit each comes to (Nangia and Bowman 2018).

    With the default sizes they are as long and deep as those of Long Range Arena (Tay et al. 2021, section 2.2.1), and drawn
    the same way: an argument is a list with probability 0.25, its operator and number of arguments are even, and what is too
    short or too long is thrown away. Closing brackets are tokens here; Arena's tokenizer loses them.
    No expression is in two splits, and validation and test do not depend on the number of training expressions.

    Args:
        train_count: training expressions.
        evaluation_count: expressions in validation, and in test.
        min_length: the fewest tokens; each operator, digit and closing bracket is one.
        max_length: the most tokens.
        max_depth: the most levels, of which the last one has digits only.
        max_args: the most arguments of an operator; the fewest are two.
        expression_seed: decides which expressions are drawn.
        batches: how expressions are put into batches.
    """

    def __init__(
        self,
        train_count: int = 96_000,
        evaluation_count: int = 2000,
        min_length: int = 500,
        max_length: int = 2000,
        max_depth: int = 10,
        max_args: int = 10,
        expression_seed: int = 0,
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
    ) -> None:
        self.sizes = ExpressionLimits(min_length, max_length, max_depth, max_args)
        super().__init__(
            limits=TextLimits(max_length=max_length + 2),  # with the marks around it
            tokenizer=TokenizerSettings(kind="word", min_frequency=1),
            batches=batches,
        )
        for name, count in (("train_count", train_count), ("evaluation_count", evaluation_count)):
            if count < 1:
                raise ValueError(f"`data.{name}` must be at least 1, but is {count}")
        self.counts = {"validation": evaluation_count, "test": evaluation_count, "train": train_count}
        self.expression_seed = expression_seed

    def read(self, split: str) -> Iterator[dict[str, str]]:
        """The expressions of a split: the first that are drawn are for validation, the next for test, then come training's."""
        begin = {"validation": 0, "test": self.counts["validation"], "train": self.counts["validation"] + self.counts["test"]}
        drawn = draw_expressions(self.sizes, str(self.expression_seed))
        chosen = islice(drawn, begin[split], begin[split] + self.counts[split])
        for number, (text, value) in enumerate(chosen, begin[split] + 1):
            yield {"text": text, "label": str(value), "where": f"expression {number}"}

    def contents(self, split: str) -> list[str]:
        """What the expressions follow from."""
        sizes = ", ".join(f"{name} {value}" for name, value in asdict(self.sizes).items())
        counts = f"{self.counts['validation']} before, {self.counts[split]} of its own"
        return [f"expressions for {split}: {sizes}, seed {self.expression_seed}, {counts}"]

    def make_assets(self) -> Assets:
        """The words that there are, and the ten digits; how often each is a value is counted in a sample drawn apart."""
        tokenizer = train_tokenizer([" ".join((*NAMES, END, *DIGITS))], self.tokenizer, progress=False)
        drawn = draw_expressions(self.sizes, f"{self.expression_seed}, sample")
        sample = islice(drawn, min(SAMPLE, self.counts["train"]))
        values = [*DIGITS, *(str(value) for _, value in sample)]
        learned = self.labelling.learn((value, "") for value in values)
        return Assets({"text": tokenizer}, learned.labels, learned.numbers)


NAMES = tuple(OPERATORS)
