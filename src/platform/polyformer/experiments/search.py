"""A search over settings by Optuna: what is tried next follows from what was tried, and what goes badly is ended early."""

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyformer.experiments.ranges import Choices, Range
from polyformer.experiments.running import Onlooker
from polyformer.experiments.runs import Run
from polyformer.experiments.settings import in_words
from polyformer.experiments.sweep import Cell, Sweep
from polyformer.experiments.sweep_folder import SweepFolder
from polyformer.plain import to_json

__all__ = ["Best", "Trials"]

STUDY = "search"
PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Best:
    """The best trial so far.

    Args:
        cell: Its name.
        value: Of the metric.
        settings: What was chosen.
    """

    cell: str
    value: float
    settings: dict[str, Any]


class Trials(Onlooker):
    """The trials of a search, one after another, and their record in `search.log`, from which a killed search goes on.

    Each trial's sampler has a seed of its own, so that a search that was stopped tries what it would have tried.

    Args:
        sweep: With a search.
        folder: Where.
        metric: What is to be made better.
        side: Its better side, "min" or "max".
        complete: Gives a cell what it lacks, such as the budget.

    Raises:
        ValueError: If Optuna is not installed, or another search was begun in this folder.
    """

    def __init__(self, sweep: Sweep, folder: SweepFolder, metric: str, side: str, complete: Callable[[Cell], Cell]) -> None:
        try:
            import optuna
            from optuna.storages.journal import JournalFileBackend
        except ImportError:
            raise ValueError("`search` needs a package that is not installed: pip install 'optuna>=4'") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        assert sweep.search is not None
        self.sweep, self.search, self.folder, self.metric = sweep, sweep.search, folder, metric
        self.side, self.complete, self._optuna = side, complete, optuna
        folder.path.mkdir(parents=True, exist_ok=True)
        file = _mended(folder.path / "search.log")
        self._storage = optuna.storages.JournalStorage(JournalFileBackend(str(file)))
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=STUDY,
            direction="minimize" if side == "min" else "maximize",
            load_if_exists=True,
            pruner=self._pruner(),
        )
        self._numbers: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._check()

    def _pruner(self) -> Any:
        if self.search.prune_after is None:
            return self._optuna.pruners.NopPruner()
        return self._optuna.pruners.MedianPruner(n_startup_trials=self.search.prune_after)

    def _check(self) -> None:
        """Refuses to go on with a search for something else; more trials are welcome."""
        told = {name: value for name, value in asdict(self.search).items() if name != "trials"}
        base = {"config": self.sweep.config, "fixed": self.sweep.fixed, "budget": self.sweep.budget}
        described = to_json({**told, "metric": self.metric, **base})
        before = self._study.user_attrs.get("described", described)
        is_minimized = self._study.direction == self._optuna.study.StudyDirection.MINIMIZE  # that of what was begun
        if before != described or is_minimized != (self.side == "min"):
            raise ValueError(f"{self.folder.path} holds a search that was begun otherwise; choose another --name, or remove it")
        self._study.set_user_attr("described", described)

    # ---- what is tried

    @property
    def done(self) -> int:
        """How many trials have come to their end."""
        return sum(trial.state.is_finished() for trial in self._all())

    def cells(self) -> Iterator[Cell]:
        """What is to be trained next: first what was begun and not ended, then what the sampler suggests."""
        for trial in self._all():
            if not trial.state.is_finished():
                yield self._cell(trial)
        while len(self._all()) < self.search.trials:
            yield self._cell(self._ask())

    def _all(self) -> list[Any]:
        return self._study.get_trials(deepcopy=False)

    def _ask(self) -> Any:
        number = len(self._all())
        kinds = {"tpe": self._optuna.samplers.TPESampler, "random": self._optuna.samplers.RandomSampler}
        self._study.sampler = kinds[self.search.sampler](seed=1_000_003 * self.search.seed + number)
        asked = self._study.ask({key: self._distribution(kind) for key, kind in self.search.ranges.items()})
        return self._all()[asked.number]

    def _distribution(self, kind: Choices) -> Any:
        if not isinstance(kind, Range):
            return self._optuna.distributions.CategoricalDistribution([_coded(choice) for choice in kind])
        log = kind.scale == "log"
        if kind.whole:
            return self._optuna.distributions.IntDistribution(int(kind.low), int(kind.high), log=log)
        return self._optuna.distributions.FloatDistribution(kind.low, kind.high, log=log)

    def _cell(self, trial: Any) -> Cell:
        cell = self.complete(self.sweep.cell_with(_name(trial), self._settings(trial.params)))
        self.folder.accept([cell])
        self._numbers[cell.name] = trial.number
        return cell

    def _settings(self, params: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for key, kind in self.search.ranges.items():
            coded = {_coded(choice): choice for choice in kind} if not isinstance(kind, Range) else {}
            found[key] = kind.written(params[key]) if isinstance(kind, Range) else coded[params[key]]
        return found

    # ---- how it goes

    def despairs_of(self, cell: Cell) -> dict[str, float] | None:
        """The newest validation, where Optuna's pruner says that the training is not worth going on with."""
        file = self.folder.run_of(cell) / "metrics.csv"
        size = file.stat().st_size if file.exists() else 0
        if size == self._read.get(cell.name, 0):
            return None
        self._read[cell.name] = size
        trial, new = self._reported(cell), validations(file, self.metric)
        if not new or not self._study.pruner.prune(self._study, trial):
            return None
        return {"step": new[-1][0], self.metric: new[-1][1]}

    def _reported(self, cell: Cell) -> Any:
        """The trial, once all validations of its training so far are on record."""
        study = self._storage.get_study_id_from_name(STUDY)
        number = self._storage.get_trial_id_from_study_id_trial_number(study, self._numbers[cell.name])
        known = self._storage.get_trial(number).intermediate_values
        for step, value in validations(self.folder.run_of(cell) / "metrics.csv", self.metric):
            if step not in known:
                self._storage.set_trial_intermediate_value(number, step, value)
        return self._storage.get_trial(number)

    def sees_end_of(self, cell: Cell) -> None:
        """Puts on record what a trial came to."""
        state, run = self._optuna.trial.TrialState, Run(self.folder.run_of(cell))
        value = run.metrics.get(self.metric, math.nan) if run.is_finished else math.nan
        self._reported(cell)
        ended = state.PRUNED if run.is_pruned else state.FAIL if math.isnan(value) else state.COMPLETE
        values = value if ended == state.COMPLETE else None
        self._study.tell(self._numbers[cell.name], values, ended, skip_if_finished=True)

    @property
    def best(self) -> Best | None:
        """The best finished trial; None where there is none."""
        complete = [trial for trial in self._all() if trial.state == self._optuna.trial.TrialState.COMPLETE]
        if not complete:
            return None
        sign = 1.0 if self.side == "min" else -1.0
        trial = min(complete, key=lambda one: (sign * one.value, one.number))
        return Best(_name(trial), trial.value, self._settings(trial.params))


def validations(file: Path, metric: str) -> Sequence[tuple[int, float]]:
    """The validations in a `metrics.csv` that somebody may be writing at this moment: a line that is not whole is left out."""
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    return [(int(row["step"]), float(row[metric])) for row in rows if row.get(metric)]


def _name(trial: Any) -> str:
    return f"trial={trial.number:03d}"


def _coded(choice: Any) -> Any:
    """A choice as Optuna keeps it: lists and mappings as words."""
    return choice if isinstance(choice, PLAIN) else in_words(choice)


def _mended(file: Path) -> Path:
    """The file without a last line that was not written whole, which would spoil the next one."""
    content = file.read_bytes() if file.exists() else b"\n"
    if not content.endswith(b"\n"):
        file.write_bytes(content[: content.rfind(b"\n") + 1])
    return file
