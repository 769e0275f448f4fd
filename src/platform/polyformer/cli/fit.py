"""`platform fit`: train, or go on with a run."""

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace

from polyformer.cli.keys import describe_keys
from polyformer.cli.pictures import model_pictures
from polyformer.cli.quiet import quiet, show_log
from polyformer.cli.settings import parse_settings
from polyformer.cli.words import flag, option
from polyformer.errors import LostRankError, Stopped, UsageError
from polyformer.plain import whole_file
from polyformer.training.build import TaskParser
from polyformer.training.fitting import Fitting
from polyformer.training.interrupt import Signals
from polyformer.training.progress import describe, log
from polyformer.training.run import RunFolder

__all__ = ["fit", "is_first", "ranks_started"]

RUN_VARIABLE = "POLYFORMER_RUN"
"""Tells processes that lightning starts for other ranks which run they belong to."""


def fit(words: list[str]) -> int:
    """Trains as the words say."""
    quiet()
    keys, resume, first = flag(words, "--keys"), flag(words, "--resume"), is_first()
    name = _name(words, resume)
    run = RunFolder(name)
    if resume:
        words = ["--config", str(_stored_config(run)), *words]
    parser, settings = parse_settings(words)
    settings.wandb.group = settings.wandb.group or _family(words)
    if keys:
        print(*describe_keys(parser.parser, settings), sep="\n")
        return 0
    if resume and settings.trainer.fast_dev_run:
        raise UsageError("--trainer.fast_dev_run tries a config out and keeps nothing: leave --resume out")
    if first and not resume:
        run.create()
    with run.held() if first else nullcontext():
        results = _train(run, parser, settings, words, resume)
    if first and settings.trainer.fast_dev_run:
        run.discard()
        log.info("%s; everything has been tried once, and nothing was kept", describe(results["metrics"]))
    elif first and results:
        _say_next(run, results)
    return 0


def _train(run: RunFolder, parser: TaskParser, settings: Namespace, words: list[str], resume: bool) -> dict[str, Any]:
    """What has come out; nothing on a rank that a signal ended."""
    first, write_config, has_begun = is_first(), partial(_write_config, run, parser, settings), False

    def begin() -> None:
        """A resumed run keeps its config until the new one has been accepted."""
        nonlocal has_begun
        has_begun = True
        if first and resume:
            write_config()

    show_log(run.path / "log.txt" if first else None)
    try:
        with _told_to_ranks(run.name), Signals() as signals:
            if first:
                log.info("run %s: %s", run.path, shlex.join(["platform", "fit", *words]))
                if not resume:
                    write_config()
            return Fitting(parser.build(settings), run, model_pictures).fit(resume, begin, signals)
    except BaseException as error:
        if has_begun or not resume or isinstance(error, (Stopped, LostRankError)):
            _end(error, run, first, resume)
        if isinstance(error, Stopped) and not first:
            return {}  # else lightning would kill the first rank for it
        raise


def _name(words: list[str], resume: bool) -> str:
    """The name of the run, whose option is taken from the words.

    Raises:
        UsageError: If it must be given and is not.
    """
    name = option(words, "--run") or os.environ.get(RUN_VARIABLE)
    if resume and name is None:
        raise UsageError("--resume needs --run NAME, the run to go on with")
    if name is None and ranks_started() > 1:
        raise UsageError("--run NAME is needed where torchrun or srun starts several processes, which must agree on it")
    return name or _default_name(words)


@contextmanager
def _told_to_ranks(name: str) -> Iterator[None]:
    """Within it, processes that lightning starts for other ranks know which run they belong to."""
    before = os.environ.get(RUN_VARIABLE)
    os.environ[RUN_VARIABLE] = name
    try:
        yield
    finally:
        del os.environ[RUN_VARIABLE]
        os.environ |= {} if before is None else {RUN_VARIABLE: before}


def _end(error: BaseException, run: RunFolder, first: bool, resume: bool) -> None:
    """Says how to go on with a run that has not come to its end; one that has learned nothing leaves its name free."""
    said = str(error) if isinstance(error, Stopped) else "stopped"
    if first and not resume and not run.has_learned:
        run.discard()
        if isinstance(error, Stopped):
            print(f"{said} before a step was saved", file=sys.stderr)
    elif run.has_learned and (first or isinstance(error, LostRankError)):
        log.info("%s; go on with: platform fit --run %s --resume", said, run.name)


def is_first() -> bool:
    """Whether this process is the first of all ranks, however they were started: by torchrun, by srun, or by lightning."""
    if "RANK" in os.environ:  # torchrun decides, also within a SLURM job
        return int(os.environ["RANK"]) == 0
    return all(int(os.environ.get(name, "0")) == 0 for name in ("SLURM_PROCID", "LOCAL_RANK", "NODE_RANK"))


def ranks_started() -> int:
    """How many processes torchrun or srun has started side by side; 1 where neither has."""
    return int(os.environ.get("WORLD_SIZE", "1") if "RANK" in os.environ else os.environ.get("SLURM_NTASKS", "1"))


def _default_name(words: list[str]) -> str:
    return f"{_family(words)}-{time.strftime('%Y-%m-%d-%H%M%S')}"


def _family(words: list[str]) -> str:
    """The name of the first config file, which runs that vary it have in common."""
    config = option(list(words), "--config")
    return Path(config).stem if config else "run"


def _stored_config(run: RunFolder) -> Path:
    if not run.config.is_file():
        raise UsageError(f"there is no run `{run.name}` to resume ({run.config} is missing)")
    return run.config


def _write_config(run: RunFolder, parser: TaskParser, settings: Namespace) -> None:
    with whole_file(run.config) as file:
        yaml.safe_dump(parser.plain(settings), file, sort_keys=False, allow_unicode=True)


def _say_next(run: RunFolder, results: dict[str, Any]) -> None:
    """The figures, and the line to try next."""
    metrics = {name: value for name, value in results["metrics"].items() if isinstance(value, float)}
    tested = {name: value for name, value in metrics.items() if name.startswith("test/")}
    log.info("%s", describe(tested) if tested else f"the best validation: {describe(metrics)}")
    log.info("everything is in %s", run.path)
    if results.get("try"):
        quoted = results["try"].replace("'", "'\\''")
        print(f"try it:\n  echo '{quoted}' | platform predict --ckpt_path {run.path}", file=sys.stderr)
