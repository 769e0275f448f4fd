"""Runs on Weights & Biases: with its own API, and offline at once where it cannot be reached."""

import json
import logging
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from polyformer.better import better_side
from polyformer.plain import to_json
from polyformer.training.facts import tags_of
from polyformer.training.tracking import Start, Tracker

__all__ = ["WeightsAndBiases", "WeightsAndBiasesOptions", "obstacle"]

log = logging.getLogger("polyformer")

PROJECT = "polyformer"
ANSWER_SECONDS, START_SECONDS = 5.0, 30.0
GROWTH = 1.1  # of the table of samples, before it is sent again as a whole


@dataclass(frozen=True)
class WeightsAndBiasesOptions:
    """Where runs go on Weights & Biases, with `logger: wandb`.

    Args:
        project: Where the run is shown; None: what WANDB_PROJECT says, otherwise polyformer.
        entity: The user or team; None: what WANDB_ENTITY says, otherwise your default.
        group: Runs that are shown together; None: the name of the config file.
        tags: More tags beside those of task, position, mixer and data.
        mode: "online", "offline" or "disabled"; None: what WANDB_MODE says, otherwise online, and offline where there is no key
            or no network.
        checkpoints: What is uploaded when training has ended: nothing ("none"), the best checkpoint ("best"), or the best and
            the last ("all").
        finish_seconds: Longest time that the end of a training waits for uploads; what is left then is on disk.

    Raises:
        ValueError: For a time that is not above 0.
    """

    project: str | None = None
    entity: str | None = None
    group: str | None = None
    tags: list[str] = field(default_factory=list)
    mode: Literal["online", "offline", "disabled"] | None = None
    checkpoints: Literal["none", "best", "all"] = "none"
    finish_seconds: float = 300.0

    def __post_init__(self) -> None:
        if self.finish_seconds <= 0.0:
            raise ValueError(f"`wandb.finish_seconds` must be above 0, but is {self.finish_seconds}")


class WeightsAndBiases(Tracker):
    """A run of Weights & Biases, whose number is kept in the run folder (`wandb.json`), so that a resumed run goes on in it.

    Args:
        options: Where it goes.
    """

    title = "Weights & Biases"

    def __init__(self, options: WeightsAndBiasesOptions) -> None:
        self.options = options
        self.run: Any = None
        self._folder = Path()
        self._judged: list[str] = []
        self._defined: set[str] = set()
        self._rows: Sequence[dict[str, Any]] = ()
        self._sent_rows = 0

    def start(self, start: Start) -> None:
        """Begins online if that is wanted and possible, otherwise offline, and says in one line where the run is."""
        import wandb

        self._folder, self._judged = start.run.path, start.facts["monitor"]
        wandb.setup(wandb.Settings(silent=True))
        mode = self.options.mode or wandb.setup().settings.mode
        obstacle = "as you wish"
        if mode == "online":
            obstacle = self._obstacle()
            mode = "offline" if obstacle else mode
        try:
            self._open(mode, start)
        except Exception as error:
            if mode != "online":
                raise
            obstacle = (str(error).strip() or type(error).__name__).partition("\n")[0]
            self._open("offline", start)
        if self.run.url:
            log.info("%s: %s", self.title, self.run.url)
        elif not self.run.disabled:
            log.info("%s: offline, %s%s", self.title, obstacle, self.advice())

    def _open(self, mode: str, start: Start) -> None:
        """Opens the run, new or that of this folder, and remembers which it is."""
        import wandb

        file, options = self._folder / "wandb.json", self.options
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self.run = wandb.init(
            project=known.get("project") or options.project or wandb.setup().settings.project or PROJECT,
            entity=known.get("entity") or options.entity,
            id=known.get("id"),
            resume="allow" if known else None,
            name=self._folder.name,
            group=options.group,
            tags=[*tags_of(start.settings), *options.tags],
            dir=str(self._folder),
            config={**start.settings, **start.facts},
            mode=mode,  # type: ignore[arg-type]
            reinit="finish_previous",
            settings=wandb.Settings(
                silent=True,
                init_timeout=START_SECONDS,
                finish_timeout=options.finish_seconds,
                finish_timeout_raises=True,
            ),
        )
        place = {"id": self.run.id, "project": self.run.project, "entity": self.run.entity}
        file.write_text(to_json(place, indent=2) + "\n", encoding="utf-8")

    def _obstacle(self) -> str:
        """Why a run cannot be online now; empty if it can."""
        parts = self._folder.glob("wandb/offline-run-*/*.wandb")
        if any(not part.with_name(f"{part.name}.synced").exists() for part in parts):
            return "as the first part of this run, which has not been uploaded yet"
        return obstacle()

    def advice(self) -> str:
        """How to upload it; of what began online, whose folder is named otherwise, it must be asked for."""
        began_online = any(self._folder.glob("wandb/run-*"))
        return f"; upload it later by: wandb sync {'--include-online ' if began_online else ''}{self._folder / 'wandb'}"

    def metrics(self, metrics: dict[str, float], step: int) -> None:
        """A row of the history. Step, tokens and seconds are in each, so that each can be the axis of a chart."""
        for name in metrics.keys() - self._defined:
            self._defined.add(name)
            is_axis, is_validation = name in ("tokens", "seconds"), name.startswith("val/")
            side = self._judged[1] if name == self._judged[0] else better_side(name)
            self.run.define_metric(
                name,
                step_metric=None if is_axis else "step",
                step_sync=None if is_axis else False,
                summary=f"{side},last" if is_validation else None,
            )
        self.run.log({"step": step, **metrics})

    def best(self, metrics: dict[str, float]) -> None:
        self.run.summary.update({f"best/{name}": value for name, value in metrics.items()})

    def samples(self, rows: Sequence[dict[str, Any]]) -> None:
        """The whole table, sent again when it has grown by a tenth, so that what is sent stays proportional to it."""
        self._rows = rows
        if len(rows) >= GROWTH * self._sent_rows:
            self._send_rows()

    def _send_rows(self) -> None:
        import wandb

        columns: list[str | int] = list(dict.fromkeys(name for row in self._rows for name in row))
        data = [[row.get(str(name)) for name in columns] for row in self._rows]
        self.run.log({"step": self._rows[-1]["step"], "samples": wandb.Table(columns=columns, data=data)})
        self._sent_rows = len(self._rows)

    def finish(self, results: dict[str, Any], pictures: dict[str, Path]) -> None:
        """The rest of the samples, pictures, figures of the whole run, its examples, and checkpoints if they are wanted."""
        import wandb

        if len(self._rows) > self._sent_rows:
            self._send_rows()
        if pictures:
            images = {f"pictures/{name}": wandb.Image(str(path)) for name, path in pictures.items()}
            self.run.log({"step": results["steps"], **images})
        figures = ("steps", "tokens", "train_seconds", "tokens_per_second", "peak_memory_bytes")
        self.best({name: value for name, value in results["metrics"].items() if not name.startswith("test/")})
        tested = {name: value for name, value in results["metrics"].items() if name.startswith("test/")}
        self.run.summary.update({**{name: results[name] for name in figures}, **tested})
        examples = self._folder / "test.jsonl.gz"
        if examples.exists():
            self.run.save(str(examples), base_path=str(self._folder), policy="now", glob=False)
        if self.options.checkpoints != "none":
            self._send_checkpoints(results)

    def _send_checkpoints(self, results: dict[str, Any]) -> None:
        """The last one, and then the best, each a version of one artifact with its name."""
        import wandb

        wanted = ("last", "best") if self.options.checkpoints == "all" else ("best",)
        files = {name: self._folder / "checkpoints" / f"{name}.ckpt" for name in wanted}
        for name, file in files.items():
            if file.exists():
                described = {"steps": results["steps"], **results["metrics"]}
                artifact = wandb.Artifact(f"checkpoint-{self.run.id}", type="model", metadata=described)
                artifact.add_file(str(file), name=file.name)
                self.run.log_artifact(artifact, aliases=[name])

    def end(self, failed: bool) -> None:
        """Waits for uploads, but not for ever."""
        self.run.finish(exit_code=1 if failed else 0)


def obstacle() -> str:
    """Why Weights & Biases cannot be reached now; empty if it can. Nothing here asks a person, or waits for long."""
    import wandb

    try:
        if not wandb.login(prompt=False, verify=False):
            return "no API key (`wandb login` keeps one)"
    except wandb.errors.Error as error:
        return str(error).strip().partition("\n")[0]
    address = wandb.setup().settings.base_url
    return "" if answers(address) else f"{address} does not answer"


def answers(address: str) -> bool:
    """Whether anything answers at an address, found out in a few seconds, also where names are not resolved."""
    found: list[bool] = []

    def ask() -> None:
        try:
            urlopen(address, timeout=ANSWER_SECONDS).close()
        except HTTPError:
            pass  # an answer
        except URLError as error:
            if not isinstance(error.reason, ssl.SSLError):
                return
        except (OSError, ValueError):
            return
        found.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return bool(found)
