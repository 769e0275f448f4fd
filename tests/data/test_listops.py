"""ListOps: the values are those of an evaluator that shares no code with the generator."""

import gzip
import re
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import torch

from polyformer.data import BatchSettings, ExpressionLimits, ListOps, draw_expressions
from polyformer.text import BOS, EOS

SMALL = ExpressionLimits(min_length=6, max_length=40, max_depth=5, max_args=5)
INNERMOST = re.compile(r"\[(MIN|MAX|MED|SM) ([\d ]+) \]")


def evaluate(text: str) -> int:
    """Lists without lists in them are replaced by their values, until one digit is left."""
    while "[" in text:
        text, count = INNERMOST.subn(lambda match: str(worth(match[1], [int(digit) for digit in match[2].split()])), text)
        assert count, f"malformed: {text}"
    return int(text)


def worth(operator: str, digits: list[int]) -> int:
    """By torch, whose median would be the lower one of the middle two."""
    values = torch.tensor(digits, dtype=torch.float64)
    if operator == "MED":
        return int(torch.quantile(values, 0.5).floor())
    return int({"MIN": values.min(), "MAX": values.max(), "SM": values.sum().remainder(10)}[operator])


def test_values_are_right() -> None:
    found = list(islice(draw_expressions(SMALL, "values"), 2000))
    assert [value for _, value in found] == [evaluate(text) for text, _ in found]
    assert len({value for _, value in found}) == 10


def test_the_evaluator_agrees_with_published_examples(corpora: Path) -> None:
    """Those of Nangia and Bowman's form have brackets around every application of a list to an argument."""
    with gzip.open(corpora / "listops" / "test_d20s.tsv.gz", "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in islice(file, 1500)]
    for value, text in rows:
        assert evaluate(" ".join(word for word in text.split() if word not in "()")) == int(value)


@pytest.mark.parametrize("limits", [SMALL, ExpressionLimits(), ExpressionLimits(20, 60, max_depth=30, max_args=3)], ids=str)
def test_sizes_are_kept(limits: ExpressionLimits) -> None:
    for text, _ in islice(draw_expressions(limits), 40):
        words = text.split()
        assert limits.min_length <= len(words) <= limits.max_length
        level = deepest = 0
        arguments = [0]
        for word in words:
            if word == "]":
                level -= 1
                assert 2 <= arguments.pop() <= limits.max_args
                continue
            arguments[-1] += 1
            if word.startswith("["):
                level += 1
                arguments.append(0)
            deepest = max(deepest, level)
        assert level == 0 and deepest < limits.max_depth


def test_lists_are_drawn_as_in_long_range_arena() -> None:
    """A quarter of all arguments above the last level are lists; operators and numbers of arguments are even."""
    limits = ExpressionLimits(min_length=4, max_length=2000, max_depth=3, max_args=8)
    operators, sizes, lists, arguments = Counter[str](), Counter[int](), 0, 0
    for text, _ in islice(draw_expressions(limits, "shares"), 1000):
        inner = INNERMOST.findall(text)
        outside = INNERMOST.sub("x", text) if text.count("[") > 1 else text
        children = outside.split()[1:-1]
        lists, arguments = lists + children.count("x"), arguments + len(children)
        operators.update(name for name, _ in inner)
        if "x" in children:
            sizes.update(len(digits.split()) for _, digits in inner)
    assert lists / arguments == pytest.approx(0.25, abs=0.03)
    assert [operators[name] / operators.total() for name in ("MIN", "MAX", "MED", "SM")] == pytest.approx([0.25] * 4, abs=0.03)
    assert [sizes[count] / sizes.total() for count in range(2, 9)] == pytest.approx([1 / 7] * 7, abs=0.03)


def test_the_seed_decides() -> None:
    first, again, other = (list(islice(draw_expressions(SMALL, seed), 50)) for seed in ("0", "0", "1"))
    assert first == again != other


def small(train_count: int = 300, **arguments: int) -> ListOps:
    sizes = {"min_length": 4, "max_length": 12, "max_depth": 3, "max_args": 4, "evaluation_count": 60, **arguments}
    return ListOps(train_count, **sizes, batches=BatchSettings(tokens=100))


def test_splits_share_nothing_and_evaluation_stays() -> None:
    """Short expressions are drawn many times over, so that this is no matter of luck."""
    data = small()
    splits = {split: [row["text"] for row in data.read(split)] for split in ("train", "validation", "test")}
    assert {split: len(set(texts)) for split, texts in splits.items()} == {"train": 300, "validation": 60, "test": 60}
    assert len(set().union(*splits.values())) == 420
    assert [row["text"] for row in small(train_count=20).read("test")] == splits["test"]
    assert [row["text"] for row in small(expression_seed=1).read("test")] != splits["test"]
    assert data.contents("train") != small(train_count=20).contents("train")
    assert data.contents("test") == small(train_count=20).contents("test") != small(expression_seed=1).contents("test")


def test_batches_hold_whole_expressions_and_their_values() -> None:
    data = small()
    data.prepare_data()
    assert [len(data.dataset(split)) for split in ("train", "validation", "test")] == [300, 60, 60]
    tokenizer, labels = data.assets.tokenizers["text"], data.assets.labels["label"]
    assert len(tokenizer) == 4 + 15 and labels == list("0123456789")
    for batch in data.test_dataloader():
        for tokens, target in zip(batch.tokens.tolist(), batch.target.tolist(), strict=True):
            end = tokens.index(EOS)
            assert tokens[0] == BOS and int(labels[target]) == evaluate(tokenizer.decode(tokens[1:end]))
    assert "cut" not in str(data.reports["train"])


def test_user_faults_are_named() -> None:
    with pytest.raises(ValueError, match=r"`data\.min_length` must be from 4 to `data\.max_length` \(12\), but is 20"):
        small(min_length=20)
    with pytest.raises(ValueError, match=r"`data\.max_args` must be from 2 to 100, but is 1"):
        small(max_args=1)
    with pytest.raises(ValueError, match=r"`data\.evaluation_count` must be at least 1, but is 0"):
        small(evaluation_count=0)
    with pytest.raises(ValueError, match=r"only 400 different expressions of 4 to 4 tokens were found: ask for fewer"):
        list(small(train_count=1000, max_length=4).read("train"))
