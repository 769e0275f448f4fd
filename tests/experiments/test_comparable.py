"""What `platform compare` ranks, and what it refuses to: by other data, other tokens, other signatures, and the wrong side."""

from pathlib import Path
from typing import Any

import pytest

from polyformer.data.encoding import TextReport
from polyformer.experiments.comparison import Comparison, compare_runs
from polyformer.experiments.rows import Mark
from polyformer.experiments.runs import Run

from .made_up import made_up

CONTEXT = "context:{}|stride:{}|layout:packed|ends:counted"


def compared(*runs: Run, **options: Any) -> Comparison:
    (found,) = compare_runs(runs, tested=False, **options)
    return found


def best_of(comparison: Comparison) -> dict[str, bool]:
    return {column.title: bool(column.best) for column in comparison.columns}


def language_model(folder: Path, kind: str, tokens: int, bits: float, window: int = 256, size: int = 9000, **more: Any) -> Run:
    """A run on the same text as another, cut into its own tokens."""
    report = TextReport(documents=10, tokens=tokens, words=1500, bytes=size, unknown=tokens // 1000)
    loss = bits * size / tokens
    metrics = {"test/loss": loss, "test/perplexity": 2**loss, "test/bits_per_byte": bits, "test/accuracy": 1 / loss}
    return made_up(
        folder,
        f"{kind}{window}",
        metrics=metrics,
        settings={"data": {"test": "t.txt", "window": window, "tokenizer": {"kind": kind}}},
        task="LanguageModeling",
        data={"test": str(report), "validation": str(report)},
        fingerprints={"test": "aaaa", "validation": "bbbb", "tokenizers": {"text": kind}},
        signatures={name: CONTEXT.format(window, window) for name in ("perplexity", "bits_per_byte")},
        **more,
    )


def test_the_same_text_in_other_tokens_is_ranked_by_bits_per_byte(tmp_path: Path) -> None:
    comparison = compared(language_model(tmp_path, "bpe", 2000, 1.6), language_model(tmp_path, "word", 1200, 1.5))
    (refusal,) = comparison.refused
    assert set(refusal.metrics) == {"test/loss", "test/perplexity", "test/accuracy"} and "tokenizers differ" in refusal.reason
    assert comparison.ranked_by == "test/bits_per_byte" and comparison.rows[0].runs[0].name == "word256"
    other = compared(
        language_model(tmp_path / "x", "bpe", 2000, 1.6), language_model(tmp_path / "x", "word", 1200, 1.5, size=1)
    )
    assert other.ranked_by is None and "the test data differ" in other.refused[0].reason


def test_losses_of_training_and_times_to_marks_are_per_token_too(tmp_path: Path) -> None:
    runs = language_model(tmp_path, "bpe", 2000, 1.6), language_model(tmp_path, "word", 1200, 1.5, losses=(9.0, 8.0, 7.0))
    comparison = compared(*runs, metrics=["train/loss"], by="train/loss", marks=[Mark("val/loss", 4.0)])
    assert comparison.ranked_by is None and not any(best_of(comparison).values())
    assert not any(column.title.startswith("time to") for column in comparison.columns)
    assert set(comparison.refused[0].metrics) == {"train/loss", "val/loss"}


def test_another_context_closes_losses_with_their_perplexities(tmp_path: Path) -> None:
    comparison = compared(language_model(tmp_path, "bpe", 2000, 1.6), language_model(tmp_path, "bpe", 2000, 1.5, window=512))
    closed = {name for refusal in comparison.refused for name in refusal.metrics}
    assert closed == {"test/loss", "test/perplexity", "test/accuracy", "test/bits_per_byte"}
    assert comparison.ranked_by is None and not any(best_of(comparison).values())


def test_signatures_of_parts_close_their_metrics(tmp_path: Path) -> None:
    texts = {"test/mood/macro_f1": 0.5, "test/mood/loss": 1.0}
    runs = [
        made_up(tmp_path, name, name, metrics=texts | {"test/mood/loss": loss}, signatures={"mood/macro_f1": name})
        for name, loss in (("A", 1.0), ("B", 2.0))
    ]
    comparison = compared(*runs, metrics=list(texts))
    assert [refusal.metrics for refusal in comparison.refused] == [("test/mood/macro_f1",)]


def part_of_the_test(folder: Path, name: str, settings: dict[str, Any]) -> Run:
    marks = {"test": "aaaa", "validation": "bbbb", "tokenizers": {"source": "x"}}
    metrics = {"test/bleu": 30.0 + len(name), "val/loss": 3.0}
    return made_up(folder, name, metrics=metrics, fingerprints=marks, settings=settings)


def data(**arguments: Any) -> dict[str, Any]:
    return {"data": {"class_path": "polyformer.data.PairData", "init_args": {"test": "t.tsv", **arguments}}}


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ({"trainer": {"limit_test_batches": None}}, {"trainer": {"limit_test_batches": 5}}, "trainer.limit_test_batches 5"),
        ({"trainer": {"limit_test_batches": 0.5}}, {"trainer": {"limit_test_batches": 1.0}}, "trainer.limit_test_batches 0.5"),
        (data(source=0, target=1), data(source=1, target=0), "data.source 1, data.target 0"),
        (
            {"data": {"test": "t.txt", "document": "line"}},
            {"data": {"test": "t.txt", "document": "file"}},
            "data.document file",
        ),
    ],
)
def test_other_parts_of_the_same_files_are_not_ranked(tmp_path: Path, one: Any, two: Any, said: str) -> None:
    comparison = compared(part_of_the_test(tmp_path, "a", one), part_of_the_test(tmp_path, "bb", two))
    assert comparison.ranked_by is None and said in comparison.refused[0].reason
    assert "platform test --ckpt_path RUN --run NAME --data.test FILES" in comparison.refused[0].instead


@pytest.mark.parametrize("trainer", [{"limit_test_batches": 1.0}, {"limit_val_batches": 5, "limit_test_batches": None}])
def test_all_of_the_same_files_are_ranked(tmp_path: Path, trainer: dict[str, Any]) -> None:
    runs = part_of_the_test(tmp_path, "a", {}), part_of_the_test(tmp_path, "bb", {"trainer": trainer})
    assert compared(*runs).ranked_by == "test/bleu"
    assert ("val/loss" in str(compared(*runs, metrics=["val/loss"]).refused)) == ("limit_val_batches" in trainer)


def test_first_batches_of_other_sizes_have_other_examples(tmp_path: Path) -> None:
    settings = [data(batches={"evaluation_tokens": size}) | {"trainer": {"limit_test_batches": 2}} for size in (100, 200)]
    runs = [part_of_the_test(tmp_path, name, own) for name, own in zip(("a", "bb"), settings, strict=True)]
    assert "data.batches.evaluation_tokens 200" in compared(*runs).refused[0].reason


def test_the_better_side_is_the_one_that_the_task_names(tmp_path: Path) -> None:
    runs = [
        made_up(tmp_path, name, name, metrics={"test/mae": error, "test/loss": 1.0}, monitor=["val/mae", "min"])
        for name, error in (("worse", 9.0), ("better", 2.0))
    ]
    (runs[1].path / "metrics.csv").write_text("step,tokens,seconds,val/mae\n1,1,1,8.0\n2,2,2,4.0\n3,3,3,2.0\n")
    comparison = compared(*runs, marks=[Mark("val/mae", 5.0)])
    assert comparison.ranked_by == "test/mae" and comparison.rows[0].runs[0].name == "better"
    assert next(column.best for column in comparison.columns if column.title == "test/mae") == {0}
    assert next(column.cells[0].mean for column in comparison.columns if column.title == "step to val/mae 5") == 2
