"""`platform fit`: train, or go on with a run."""

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace

from polyformer.cli.pictures import attention_pictures
from polyformer.cli.quiet import quiet, show_log
from polyformer.cli.settings import parse_settings
from polyformer.cli.words import flag, option
from polyformer.errors import UsageError
from polyformer.training.build import TaskParser
from polyformer.training.fitting import Fitting
from polyformer.training.progress import describe, log
from polyformer.training.run import RunFolder

__all__ = ["fit"]

RUN_VARIABLE = "POLYFORMER_RUN"
"""Tells processes that lightning starts for other ranks which run they belong to."""


def fit(words: list[str]) -> int:
    """Trains as the words say."""
    quiet()
    keys, resume, name = flag(words, "--keys"), flag(words, "--resume"), option(words, "--run")
    first = int(os.environ.get("LOCAL_RANK", "0")) == 0 and int(os.environ.get("NODE_RANK", "0")) == 0
    name = name or os.environ.get(RUN_VARIABLE)
    if resume and name is None:
        raise UsageError("--resume needs --run NAME, the run to go on with")
    name = name or _default_name(words)
    run = RunFolder(name)
    if resume:
        words = ["--config", str(_stored_config(run)), *words]
    parser, settings = parse_settings(words)
    settings.wandb.group = settings.wandb.group or _family(words)
    if keys:
        parser.parser.print_help()
        return 0
    if first and not resume:
        run.create()
    os.environ[RUN_VARIABLE] = name
    show_log(run.path / "log.txt" if first else None)
    write_config = partial(_write_config, run, parser, settings)
    try:
        if first:
            log.info("run %s: %s", run.path, " ".join(["platform fit", *words]))
            if not resume:
                write_config()
        # A resumed run keeps its config until the new one has been accepted.
        fitting = Fitting(parser.build(settings), run, attention_pictures)
        results = fitting.fit(resume, write_config if first and resume else None)
    except BaseException:
        if first and not resume and not run.has_learned:
            run.discard()
        elif first and run.has_learned:
            log.info("stopped; go on with: platform fit --run %s --resume", run.name)
        raise
    if first:
        _say_next(run, results)
    return 0


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
    temporary = run.path / ".config.yaml"
    with temporary.open("w", encoding="utf-8") as file:
        yaml.safe_dump(parser.plain(settings), file, sort_keys=False, allow_unicode=True)
    temporary.replace(run.config)


def _say_next(run: RunFolder, results: dict[str, Any]) -> None:
    """The figures, and the line to try next."""
    metrics = {name: value for name, value in results["metrics"].items() if isinstance(value, float)}
    log.info("%s", describe({name: value for name, value in metrics.items() if name.startswith("test/")} or metrics))
    log.info("everything is in %s", run.path)
    if results.get("try"):
        quoted = results["try"].replace("'", "'\\''")
        print(f"try it:\n  echo '{quoted}' | platform predict --ckpt_path {run.path}", file=sys.stderr)
