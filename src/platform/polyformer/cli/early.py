"""Mistakes on the command line that can be told before seconds go into imports."""

from pathlib import Path

from polyformer.cli.settings import named_task
from polyformer.cli.words import option
from polyformer.errors import UsageError

__all__ = ["MISSING_CHECKPOINT", "check_words"]

MISSING_CHECKPOINT = "--ckpt_path PATH is missing: a checkpoint, or a run folder"
NEED_CHECKPOINT = ("validate", "test", "predict", "score")


def check_words(verb: str, words: list[str]) -> None:
    """Refuses a config that is missing, broken or without a task, and a checkpoint that is not there.

    Raises:
        UsageError: For a command line that is wrong.
        ValueError: For a checkpoint that does not exist.
    """
    given = {word.partition("=")[0] for word in words}
    if given & {"-h", "--help"} or verb in ("plot", "sweep"):
        return
    place = option(list(words), "--ckpt_path")
    if verb in NEED_CHECKPOINT:
        if place is None:
            raise UsageError(MISSING_CHECKPOINT)
        if not Path(place).exists():
            raise ValueError(f"{place}: no such checkpoint or run folder")
    if "--config" in given or (verb == "fit" and "--resume" not in given):
        named_task(words)
