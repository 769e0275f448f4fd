"""`platform sweep`: many trainings from one description."""

import math
import re
import shlex
import sys
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from polyformer.cli.help import SWEEP
from polyformer.cli.quiet import quiet
from polyformer.cli.settings import parse_settings, read_config
from polyformer.cli.words import flag, option
from polyformer.errors import UsageError
from polyformer.experiments.agents import for_agents
from polyformer.experiments.ranges import Range
from polyformer.experiments.running import SweepRunner
from polyformer.experiments.search import Trials
from polyformer.experiments.settings import flat, in_words
from polyformer.experiments.sweep import BUDGETS, Cell, Search, Sweep, seeds_of, sweep_of
from polyformer.experiments.sweep_folder import SweepFolder

__all__ = ["sweep"]

PLATFORM = (sys.executable, "-c", "import sys; from polyformer.cli import main; sys.exit(main())")


def sweep(words: list[str]) -> int:
    """Runs a sweep, or says what it would run; the exit code is 1 where a training failed."""
    if {"-h", "--help"}.intersection(words):
        print(SWEEP)
        return 0
    quiet()
    dry, agents, only = flag(words, "--dry-run"), option(words, "--to-wandb"), option(words, "--cell")
    again = list(words)
    try:
        described = _described(words)
        fixed, more = _rest(words)
        described = replace(described, fixed={**described.fixed, **fixed}).with_more(more)
        listed = described.cells if described.search is None else [_first_trial(described, described.search)]
        chosen = [cell for cell in listed if only in (None, cell.name)]
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not chosen:
        raise UsageError(f"--cell {only}: there is no such cell; there are {', '.join(cell.name for cell in listed)}")
    metrics = [_monitor(cell) for cell in chosen]
    metric = (described.search.metric if described.search is not None else None) or metrics[0]
    cells = [_within_budget(cell, described.budget) for cell in chosen]
    folder = SweepFolder(Path("runs", described.name) if "/" not in described.name else Path(described.name))
    if agents is not None:
        return _write_agents(described, cells, metric, again, Path(agents))
    if dry:
        for cell in cells:
            print(shlex.join(["platform", *folder.words_for(cell)]) + (" # finished" if folder.is_finished(cell) else ""))
        return 0
    if described.search is not None:
        return _search(described, described.search, folder, metric)
    failed = SweepRunner(folder, PLATFORM, described.parallel, _say).run(cells)
    _say(f"{len(cells) - len(failed)} of {len(cells)} cells have finished; compare them: platform compare {folder.path}")
    for cell in failed:
        _say(f"failed: {cell.name}; the same command tries it again")
    return int(bool(failed))


def _first_trial(described: Sweep, search: Search) -> Cell:
    """A trial with some of the values that are searched over, by which mistakes are found before anything is trained."""
    some = {key: kind.written(kind.low) if isinstance(kind, Range) else kind[0] for key, kind in search.ranges.items()}
    return described.cell_with("trial=000", some)


def _search(described: Sweep, search: Search, folder: SweepFolder, metric: str) -> int:
    """Trains what a search asks for, and says what was best."""
    trials = Trials(described, folder, metric, partial(_within_budget, budget=described.budget))
    runner = SweepRunner(folder, PLATFORM, described.parallel, _say, trials)
    failed = runner.run_as_they_come(trials.cells(), search.trials, trials.done)
    for cell in failed:
        _say(f"failed: {cell.name}")
    best = trials.best
    if best is not None:
        chosen = ", ".join(f"{key} {in_words(value)}" for key, value in best.settings.items())
        _say(f"best of {trials.done} trials: {best.cell}, {metric} {best.value:.4g}, with {chosen}")
        _say(f"its settings: {folder.path / best.cell / 'config.yaml'}; all trials: platform compare {folder.path}")
    return int(best is None)


def _described(words: list[str]) -> Sweep:
    """The sweep that a file, the words, or both describe; its own options are taken out of the words.

    Raises:
        ValueError: If it is not described, or not rightly.
    """
    file = words.pop(0) if words and not words[0].startswith("-") else None
    content: dict[str, Any] = read_config(file, "`config:` and `vary:`") if file is not None else {}
    configs, varied = _all(words, "--config"), _all(words, "--vary")
    if configs:
        content["config"] = configs
    for said in varied:
        key, equals, values = said.partition("=")
        if not equals or not values:
            raise ValueError(f"--vary must be KEY=VALUE,VALUE, such as model.position=Rotary,Learned, but is {said}")
        content["vary"] = {**(content.get("vary") or {}), key: _values(values)}
    for name, read in (("seeds", _seeds), ("parallel", _number), ("budget", _budget), ("name", str)):
        given = option(words, f"--{name}")
        if given is not None:
            content[name] = read(given)
    if (trials := option(words, "--trials")) is not None:
        content["search"] = {**(content.get("search") or {}), "trials": _number(trials)}
    if file is None and not varied and "seeds" not in content:
        raise ValueError("say what is to be run: platform sweep SWEEP.yaml, or --config FILE --vary KEY=VALUE,VALUE --seeds N")
    stem = Path(file or (configs or ["sweep"])[0]).stem
    keys = [said.partition("=")[0].rpartition(".")[2] for said in varied]
    found = sweep_of(content, "-".join([stem, *keys]), file or "the sweep")
    if found.parallel < 1:
        raise ValueError(f"`parallel` must be at least 1, but is {found.parallel}")
    return found


def _all(words: list[str], name: str) -> list[str]:
    found = []
    while (value := option(words, name)) is not None:
        found.append(value)
    return found


def _values(said: str) -> list[Any]:
    """Values with commas between them, except within brackets.

    >>> _values("Rotary,4,0.1,[1, 2]")
    ['Rotary', 4, 0.1, [1, 2]]
    """
    parts, depth = [""], 0
    for character in said:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [yaml.safe_load(part) for part in parts]


def _number(said: str) -> int:
    if not said.isdigit():
        raise ValueError(f"a whole number is needed, but there is {said}")
    return int(said)


def _seeds(said: str) -> list[int]:
    return list(seeds_of(int(said) if said.isdigit() else [_number(part) for part in said.split(",")]))


def _budget(said: str) -> dict[str, float]:
    kind, _, value = said.partition("=")
    if kind not in BUDGETS or not re.fullmatch(r"[0-9]+([.][0-9]+)?(e[0-9]+)?", value):
        raise ValueError(f"--budget must be steps=N, tokens=N, seconds=N or minutes=N, but is {said}")
    return {kind: float(value)}


def _rest(words: list[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Keys of `fit` for all cells, from what is left of the words; and by the names of choices those for some cells.

    Raises:
        ValueError: For words that are no keys with values.
    """
    found, more, left = dict[str, Any](), dict[str, dict[str, Any]](), list(words)
    while left:
        key, equals, value = left.pop(0).partition("=")
        if not key.startswith("--") or not (equals or left):
            raise ValueError(f"unknown option {key}; keys of `platform fit` need a value")
        choice, colon, own = key.removeprefix("--").rpartition(":")
        place = more.setdefault(choice, {}) if colon else found
        place[own] = value if equals else left.pop(0)
    return found, more


def _within_budget(cell: Cell, budget: dict[str, float]) -> Cell:
    """The cell with the keys that end its training at the budget; they win over its own."""
    for kind, value in budget.items():
        if kind == "seconds":
            minutes, seconds = divmod(round(value), 60)
            days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
            return _with(cell, "trainer.max_time", f"{days:02d}:{hours:02d}:{minutes:02d}:{seconds:02d}")
        if kind == "tokens":
            settings = _settings(tuple(cell.words))
            if "data.batches.tokens" not in settings:
                raise UsageError("--budget tokens needs data with `data.batches.tokens`; give steps=N or seconds=N")
            at_once = settings["data.batches.tokens"] * settings["trainer.accumulate_grad_batches"]
            return _with(cell, "trainer.max_steps", max(1, math.ceil(value / at_once)))
        return _with(cell, "trainer.max_steps", int(value))
    return cell


def _with(cell: Cell, key: str, value: Any) -> Cell:
    own = {name: given for name, given in cell.settings.items() if name != key}
    return Cell(cell.name, {**own, key: value})


@cache
def _settings(words: tuple[str, ...]) -> dict[str, Any]:
    """The complete settings that words of `platform fit` give.

    Raises:
        UsageError: For an unknown key, or a value that does not fit.
    """
    parser, settings = parse_settings(list(words))
    return flat(parser.plain(settings))


def _monitor(cell: Cell) -> str:
    """The metric that a cell's checkpoints are judged by, as far as its settings and its task say it.

    Raises:
        UsageError: For a mistake in the cell, which is said so before anything is trained.
    """
    from polyformer.training.build import task_class  # once there is something to train: it takes seconds

    try:
        settings = _settings(tuple(cell.words))
        return str(settings.get("training.monitor") or task_class(settings["task"]).monitor[0])
    except UsageError as error:
        raise UsageError(f"cell {cell.name}: {error}") from None


def _write_agents(described: Sweep, cells: list[Cell], metric: str, again: list[str], path: Path) -> int:
    """Writes the sweep for W&B's agents, and says how to start them."""
    keys = ("trainer.max_steps", "trainer.max_time") if described.budget else ()
    limits = {key: value for key, value in cells[0].settings.items() if key in keys}
    extra = Cell("", {"config": [], **limits}).words
    path.write_text(yaml.safe_dump(for_agents(described, metric, again, extra), sort_keys=False), encoding="utf-8")
    print(
        f"{path}\ngo on:\n  wandb sweep {path}\n  wandb agent ENTITY/PROJECT/SWEEP   (as it prints), on any number of machines"
    )
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
