"""`platform sweep`: many trainings from one description."""

import re
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from polyformer.cli.budgets import SIZES, complete_settings, limits_of, within_budget
from polyformer.cli.help import SWEEP
from polyformer.cli.quiet import quiet
from polyformer.cli.settings import read_config
from polyformer.cli.words import flag, option
from polyformer.errors import UsageError
from polyformer.experiments.agents import for_agents
from polyformer.experiments.description import mapping, seeds_of, sweep_of
from polyformer.experiments.ranges import Range
from polyformer.experiments.running import SweepRunner
from polyformer.experiments.search import Trials
from polyformer.experiments.settings import in_words
from polyformer.experiments.sweep import BUDGETS, Cell, Search, Sweep
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
    for cell in chosen:
        _check(cell)
    cells = [within_budget(cell, described.budget) for cell in chosen]
    folder = SweepFolder(Path("runs", described.name) if "/" not in described.name else Path(described.name))
    if agents is not None:
        return _write_agents(described, cells, again, Path(agents))
    if dry:
        for cell in cells:
            print(shlex.join(["platform", *folder.words_for(cell)]) + (" # finished" if folder.is_finished(cell) else ""))
        return 0
    if described.search is not None:
        return _search(described, described.search, folder, _judged(described, cells[0]))
    failed = SweepRunner(folder, PLATFORM, described.parallel, _say).run(cells)
    _say(f"{len(cells) - len(failed)} of {len(cells)} cells have finished; compare them: platform compare {folder.path}")
    for cell in failed:
        _say(f"failed: {cell.name}; the same command tries it again")
    return int(bool(failed))


def _first_trial(described: Sweep, search: Search) -> Cell:
    """A trial with some of the values that are searched over, by which mistakes are found before anything is trained."""
    some = {key: kind.written(kind.low) if isinstance(kind, Range) else kind[0] for key, kind in search.ranges.items()}
    return described.cell_with("trial=000", some)


def _judged(described: Sweep, cell: Cell) -> tuple[str, str]:
    """The metric that trainings are judged by, and its better side."""
    from polyformer.cli.judged import judged  # once there is something to train: it takes seconds

    return judged(cell.words, None if described.search is None else described.search.metric)


def _search(described: Sweep, search: Search, folder: SweepFolder, judged: tuple[str, str]) -> int:
    """Trains what a search asks for, and says what was best."""
    metric, side = judged
    trials = Trials(described, folder, metric, side, partial(within_budget, budget=described.budget))
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
        content["vary"] = {**_part(content, "vary", file), key: _values(key, values)}
    for name, read in (("seeds", _seeds), ("parallel", partial(_number, "--parallel")), ("budget", _budget), ("name", str)):
        given = option(words, f"--{name}")
        if given is not None:
            content[name] = read(given)
    if (trials := option(words, "--trials")) is not None:
        content["search"] = {**_part(content, "search", file), "trials": _number("--trials", trials)}
    if file is None and not varied and "seeds" not in content:
        raise ValueError("say what is to be run: platform sweep SWEEP.yaml, or --config FILE --vary KEY=VALUE,VALUE --seeds N")
    stem = Path(file or (configs or ["sweep"])[0]).stem
    keys = [said.partition("=")[0].rpartition(".")[2] for said in varied]
    return sweep_of(content, "-".join([stem, *keys]), file or "the sweep")


def _part(content: dict[str, Any], name: str, file: str | None) -> dict[str, Any]:
    """What a file has under a key, to which words are added."""
    try:
        return mapping(content.get(name), name)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def _all(words: list[str], name: str) -> list[str]:
    found = []
    while (value := option(words, name)) is not None:
        found.append(value)
    return found


def _values(key: str, said: str) -> list[Any]:
    """Values with commas between them, except within brackets.

    Raises:
        ValueError: For one that is no YAML.

    >>> _values("model.position", "Rotary,4,0.1,[1, 2]")
    ['Rotary', 4, 0.1, [1, 2]]
    """
    parts, depth = [""], 0
    for character in said:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    try:
        return [yaml.safe_load(part) for part in parts]
    except yaml.YAMLError:
        raise ValueError(f"--vary {key}={said}: not readable as values; brackets and quotation marks must be closed") from None


def _number(name: str, said: str) -> int:
    if not said.isdecimal():
        raise ValueError(f"{name} must be a whole number, but is {said}")
    return int(said)


def _seeds(said: str) -> list[int]:
    found = [_number("--seeds", part) for part in said.split(",")]
    if found == [0]:
        raise ValueError("--seeds must be how many there are, at least 1, or several with commas between them, but is 0")
    return found if "," in said else list(seeds_of(found[0]))


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


def _check(cell: Cell) -> None:
    """Raises UsageError for a mistake in a cell, before anything is trained."""
    try:
        complete_settings(tuple(cell.words))
    except UsageError as error:
        raise UsageError(f"cell {cell.name}: {error}") from None


def _write_agents(described: Sweep, cells: list[Cell], again: list[str], path: Path) -> int:
    """Writes the sweep for W&B's agents, and says how to start them.

    Raises:
        UsageError: For a search over what a budget of tokens is told from.
    """
    sizes = [key for key in (described.search.ranges if described.search is not None else ()) if key in SIZES]
    if sizes and "tokens" in described.budget:
        raise UsageError(f"--to-wandb cannot search over `{sizes[0]}` with a budget of tokens: give steps=N or seconds=N")
    limits = [limits_of(cell) if described.budget else {} for cell in cells]
    extra = Cell("", {"config": [], **limits[0]}).words if all(one == limits[0] for one in limits) else None
    content = for_agents(described, _judged(described, cells[0]), again, extra)
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    print(
        f"{path}\ngo on:\n  wandb sweep {path}\n  wandb agent ENTITY/PROJECT/SWEEP   (as it prints), on any number of machines"
    )
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
