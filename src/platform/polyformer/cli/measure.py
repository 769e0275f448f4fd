"""`platform validate` and `platform test`: measuring a checkpoint."""

import sys
from pathlib import Path

from polyformer.cli.load import load
from polyformer.cli.measured import MeasuredRun
from polyformer.cli.quiet import quiet, show_log
from polyformer.cli.words import option
from polyformer.errors import UsageError
from polyformer.plain import to_json, write_json_lines
from polyformer.training.fitting import make_trainer
from polyformer.training.progress import Meter

__all__ = ["test", "validate"]


def validate(words: list[str]) -> int:
    """Measures on the validation data."""
    return _measure(words, "validation")


def test(words: list[str]) -> int:
    """Measures on the test data."""
    return _measure(words, "test")


def _measure(words: list[str], split: str) -> int:
    quiet()
    show_log()
    file, examples, name = option(words, "--json"), option(words, "--examples"), option(words, "--run")
    place = str(option(list(words), "--ckpt_path"))
    kept = None if name is None else MeasuredRun(name, place)
    task, built = load(words)
    if built.data.contents(split) is None:
        raise UsageError(f"the run has no {split} data; name some by --data.{split} FILES")
    trainer = make_trainer(None, callbacks=[Meter()], devices=1)  # each example once, on one device
    run = trainer.test if split == "test" else trainer.validate
    run(task, datamodule=built.data, verbose=False)
    for metric, value in task.metrics.items():
        print(f"{metric}\t{value:.6g}")
    for metric, signature in task.signatures().items():
        print(f"{metric} signature\t{signature}")
    print(f"{split} data: {built.data.reports[split]}", file=sys.stderr)
    if examples is not None:
        write_json_lines(Path(examples), task.tell())
    if file is not None:
        content = {"checkpoint": place, "metrics": task.metrics, "signatures": task.signatures()}
        Path(file).write_text(to_json(content, indent=2) + "\n", encoding="utf-8")
    if kept is not None:
        kept.write(task, built, split)
    return 0
