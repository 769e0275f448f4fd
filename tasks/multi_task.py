"""Several tasks that share one encoder and are trained jointly (Caruana 1997; Liu et al. 2019)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from polyformer.data import MixedData, PartBatch, part_assets
from polyformer.models import EncoderOnly, EncoderOnlyOptions
from polyformer.nn import Mean, PoolingFactory
from polyformer.text import Assets
from polyformer.training import Answer, Loss, Task

__all__ = ["MultiTask", "MultiTaskOptions"]

TaskFactory = Callable[[Assets, Any], Task]


@dataclass(frozen=True, kw_only=True)
class MultiTaskOptions(EncoderOnlyOptions):
    """The shared encoder, and what its heads have in common.

    Args:
        pooling: What makes one vector of a text's, in the heads that need one.
        output_dropout: Probability of dropout on what enters a head, in the heads that have it.
    """

    pooling: PoolingFactory = Mean
    output_dropout: float = 0.1


class MultiTask(Task):
    """Heads of other tasks on one encoder; each batch trains the encoder and one head.

    The other heads get no gradient in such a step, so their optimizer state rests too.

    Args:
        assets: Tokenizer "text", and the labels of each part under its name.
        options: The network.
        tasks: The task of each part of the data, by the same names.
        weights: Factor of each part's loss; 1 for those not named.
        use: The part that answers lines; None: all do, and each answer says whose it is.

    Raises:
        ValueError: For a task without an encoder alone, and names of no part.
    """

    model_class = MultiTaskOptions
    data_class = MixedData
    trains_all_parameters = False

    def __init__(
        self,
        assets: Assets,
        options: MultiTaskOptions,
        tasks: dict[str, TaskFactory],
        weights: dict[str, float] = {},  # noqa: B006 - read only
        use: str | None = None,
    ) -> None:
        self.heads: dict[str, Task] = {}
        super().__init__(assets, options)
        for key, names in (("weights", weights), ("use", [use] if use is not None else [])):
            for name in names:
                if name not in tasks:
                    raise ValueError(f"`task.{key}` has {name}, but `task.tasks` has {', '.join(tasks)}")
        for name in tasks:
            if hasattr(nn.ModuleDict, name):
                raise ValueError(f"`task.tasks` has {name}, which cannot be the name of a part: choose another")
            if not weights.get(name, 1.0) > 0.0:
                raise ValueError(f"`task.weights.{name}` must be above 0, but is {weights[name]}")
        self.weights, self.use = weights, use
        self.network = EncoderOnly(len(assets.tokenizers["text"]), options)
        made = {name: _head(name, factory, part_assets(assets, name), options) for name, factory in tasks.items()}
        for head in made.values():
            del head.network
            head.__dict__["network"] = self.network  # shared, and not a second time among the weights
        self.tasks = nn.ModuleDict(made)
        self.heads = made

    @property
    def settings(self) -> dict[str, Any]:
        """The run's settings; each head sees those of its own data."""
        return self._settings

    @settings.setter
    def settings(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        parts = settings.get("data", {}).get("init_args", {}).get("parts", {})
        for name, head in self.heads.items():
            head.settings = {**settings, "data": parts.get(name, {})}

    def accept(self, data: MixedData) -> None:
        if set(data.parts) != set(self.heads):
            raise ValueError(
                f"`task.tasks` ({', '.join(self.heads)}) and `data.parts` ({', '.join(data.parts)}) must have the same names"
            )
        for name, head in self.heads.items():
            head.check(self.options, data.parts[name], training=True)
            head.accept(data.parts[name])

    # ---- training and evaluation

    def loss(self, batch: PartBatch) -> Loss:
        loss = self.heads[batch.part].loss(batch.batch)
        tokens = {"tokens": loss.sums.get("tokens", loss.count)}
        return Loss(self.weights.get(batch.part, 1.0) * loss.total, loss.count, {**tokens, **_named(batch.part, loss)})

    def trained(self, sums: dict[str, float]) -> dict[str, float]:
        """What is logged of each part that was trained, and the weighted mean of their losses."""
        present = {name: _sums_of(name, sums) for name in self.heads if f"{name}/count" in sums}
        found = {name: head.trained(present[name]) for name, head in self.heads.items() if name in present}
        named = {f"{name}/{key}": value for name, figures in found.items() for key, value in figures.items()}
        return {"loss": self._mean({name: figures["loss"] for name, figures in found.items()}), **named}

    def _mean(self, losses: dict[str, float]) -> float:
        weights = {name: self.weights.get(name, 1.0) for name in losses}
        return sum(weights[name] * losses[name] for name in losses) / sum(weights.values())

    def evaluate(self, batch: PartBatch, split: str) -> tuple[Loss, list[tuple[int, Any]]]:
        loss, records = self.heads[batch.part].evaluate(batch.batch, split)
        own = Loss(loss.total, loss.count, _named(batch.part, loss))
        return own, [(number, (batch.part, record)) for number, record in records]

    def measure(self, sums: dict[str, float], records: list[Any], split: str) -> dict[str, float]:
        """Each part's metrics under its name, and the weighted mean of their losses."""
        metrics, losses = dict[str, float](), dict[str, float]()
        for name, head in self.heads.items():
            if own := _sums_of(name, sums):
                head.data = self.data.parts[name]
                found = head.measure(own, _records_of(name, records), split)
                losses[name] = found["loss"]
                metrics |= {f"{name}/{key}": value for key, value in found.items()}
        return {"loss": self._mean(losses), **metrics}

    def signatures(self) -> dict[str, str]:
        return {f"{name}/{key}": value for name, head in self.heads.items() for key, value in head.signatures().items()}

    def samples(self, records: list[Any]) -> list[str]:
        shown = {name: head.samples(own) for name, head in self.heads.items() if (own := _records_of(name, records))}
        return [f"{name}: {line}" for name, lines in shown.items() for line in lines]

    def sample_rows(self, records: list[Any]) -> list[dict[str, Any]]:
        shown = {name: head.sample_rows(own) for name, head in self.heads.items() if (own := _records_of(name, records))}
        return [{"part": name, **row} for name, rows in shown.items() for row in rows]

    def example_rows(self, records: list[Any]) -> list[dict[str, Any]]:
        told = {name: head.example_rows(own) for name, head in self.heads.items() if (own := _records_of(name, records))}
        return [{"part": name, **row} for name, rows in told.items() for row in rows]

    def pictures(self, records: list[Any]) -> dict[str, Any]:
        found = {name: head.pictures(own) for name, head in self.heads.items() if (own := _records_of(name, records))}
        return {f"{name}_{key}": picture for name, pictures in found.items() for key, picture in pictures.items()}

    def try_line(self, records: list[Any]) -> str:
        present = [part for part, _ in records]
        name = self.use if self.use in present else next(iter(present), None)
        return "" if name is None else self.heads[name].try_line(_records_of(name, records))

    # ---- using it

    def answer(self, lines: Sequence[str]) -> list[Answer]:
        """What the chosen part answers, or all parts: their texts with their names before them, tabs between."""
        return self._asked(lines, "answer")

    def score(self, lines: Sequence[str]) -> list[Answer]:
        return self._asked(lines, "score")

    def _asked(self, lines: Sequence[str], what: str) -> list[Answer]:
        if self.use is not None:
            chosen: list[Answer] = getattr(self.heads[self.use], what)(lines)
            return chosen
        found = {name: getattr(head, what)(lines) for name, head in self.heads.items()}
        texts = ["\t".join(f"{name}: {answers[line].text}" for name, answers in found.items()) for line in range(len(lines))]
        answered: list[Answer] = []
        for line, text in enumerate(texts):
            own = {name: {"text": answers[line].text, **answers[line].details} for name, answers in found.items()}
            answered.append(Answer(text, own))
        return answered

    def remarks(self) -> list[str]:
        return [f"{name}: {remark}" for name, head in self.heads.items() for remark in head.remarks()]


def _head(name: str, factory: TaskFactory, assets: Assets, options: MultiTaskOptions) -> Task:
    """A part's task, whose network is about to be replaced by the shared one."""
    try:
        head = factory(assets, options)
    except (AttributeError, KeyError) as error:
        raise ValueError(f"`task.tasks.{name}` cannot share an encoder alone with others: it needs {error}") from error
    if not isinstance(getattr(head, "network", None), EncoderOnly):
        raise ValueError(f"`task.tasks.{name}` is {type(head).__name__}, which has no encoder alone that could be shared")
    return head


def _named(name: str, loss: Loss) -> dict[str, Any]:
    """All sums of a part's loss under its name."""
    return {f"{name}/{key}": value for key, value in {"loss": loss.total, "count": loss.count, **loss.sums}.items()}


def _sums_of(name: str, sums: dict[str, float]) -> dict[str, float]:
    return {key.removeprefix(f"{name}/"): value for key, value in sums.items() if key.startswith(f"{name}/")}


def _records_of(name: str, records: list[Any]) -> list[Any]:
    return [record for part, record in records if part == name]
