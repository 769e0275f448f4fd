"""From settings to objects: the one parser that the command line, YAML files and checkpoints go through."""

import importlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentError, ArgumentParser, Namespace
from lightning.pytorch import Trainer
from torch import nn
from torch.optim import Optimizer

import polyformer.data
from polyformer.data import DataModule
from polyformer.nn import CrossMixer, Mixer, Position
from polyformer.nn.shape import Limited
from polyformer.text import Assets
from polyformer.training.checkpoints import read_checkpoint
from polyformer.training.discovery import find_tasks
from polyformer.training.explain import explain, explain_group
from polyformer.training.low_rank import merge_differences
from polyformer.training.names import nearest
from polyformer.training.recipe import Recipe
from polyformer.training.schedules import Schedule
from polyformer.training.task import Task
from polyformer.training.weights_and_biases import WeightsAndBiasesOptions

__all__ = ["Built", "TaskParser", "load_task", "task_class"]

TRAINER_OWNED = {
    "barebones", "callbacks", "default_root_dir", "enable_checkpointing", "enable_model_summary", "enable_progress_bar",
    "logger", "min_epochs", "min_steps", "model_registry", "plugins", "reload_dataloaders_every_n_epochs",
    "check_val_every_n_epoch", "num_sanity_val_steps", "use_distributed_sampler", "enable_autolog_hparams",
}  # fmt: skip
"""Arguments of the Trainer that Polyformer sets itself; they are no keys of `trainer:`."""


CLASS_KEYS = (
    "data", "training.optimizer", "training.schedule", "model.mixer", "model.cross", "model.feed_forward", "model.position"
)  # fmt: skip
"""Keys that name a class and have a default; see :func:`named_classes`."""

TRACKER_NAMES = Literal["wandb", "tensorboard"] | list[Literal["wandb", "tensorboard"]] | None
LOGGER = "where the run can be watched beside its folder, as wandb or [wandb, tensorboard]; metrics.csv is always written"


@dataclass(frozen=True)
class Built:
    """What settings describe, before weights and data are made."""

    task: type[Task]
    options: Any
    task_arguments: dict[str, Any]
    data: DataModule
    recipe: Recipe
    trainer: Namespace
    settings: dict[str, Any]

    def make_task(self, assets: Assets) -> Task:
        """The task, with fresh weights."""
        task = self.task(assets, self.options, **self.task_arguments)
        task.recipe, task.settings = self.recipe, self.settings
        return task


def task_class(name: str) -> type[Task]:
    """A task by its class name, or by its dotted path.

    Raises:
        ValueError: If there is none, with the nearest name.
    """
    tasks = find_tasks()
    found = tasks.get(name) or {f"{kind.__module__}.{kind.__name__}": kind for kind in tasks.values()}.get(name)
    if found is None:
        missing = f"`task` is {name}, but there is no such task{nearest(name, tasks)}; `platform tasks` lists them"
        raise ValueError(f"{missing}{tasks.warning}")
    return found


class TaskParser:
    """The keys of one task: `task`, `model`, `data`, `training`, `trainer`, `logger`, `wandb` and `seed`.

    Args:
        task: The task's class.
    """

    def __init__(self, task: type[Task]) -> None:
        self.task = task
        for name in polyformer.data.__all__:
            getattr(polyformer.data, name)  # a class is known by its bare name once it is imported
        parser = ArgumentParser(exit_on_error=False, prog="platform fit", default_env=False, allow_abbrev=False)
        parser.add_argument("--config", action="config", help="YAML file with any of the keys below; may be repeated")
        parser.add_argument("--seed", type=int, default=0, help="decides initial weights, dropout and the order of the data")
        parser.add_subclass_arguments(
            task, "task", skip={"assets", "options"}, instantiate=False, help="the task and its options"
        )
        parser.add_class_arguments(task.model_class, "model")
        parser.add_subclass_arguments(task.data_class, "data", help="where the data is and how it is cut into batches")
        parser.add_class_arguments(Recipe, "training")
        parser.add_class_arguments(Trainer, "trainer", skip=TRAINER_OWNED, instantiate=False)
        parser.add_argument("--logger", type=TRACKER_NAMES, default=None, help=LOGGER)
        parser.add_class_arguments(WeightsAndBiasesOptions, "wandb")
        parser.set_defaults({"task": task.__name__, "data": task.data_class.__name__})
        self.parser, self.defaults = parser, parser.get_defaults()

    def classes_for(self, key: str) -> list[str]:
        """The classes that the value of a key may name."""
        kinds = {"position": Position, "cross_position": Position, "positions": Position, "mixer": Mixer, "mixers": Mixer,
                 "decoder_mixers": Mixer, "cross": CrossMixer, "schedule": Schedule, "optimizer": Optimizer,
                 "data": DataModule, "task": Task}  # fmt: skip
        kind = kinds.get(key.rpartition(".")[2], nn.Module)
        names = (found.__name__ for found in all_subclasses(kind))
        return list(dict.fromkeys(name for name in names if not name.startswith("_")))

    def parse(self, arguments: list[str]) -> Namespace:
        """The complete settings for command-line arguments, config files among them.

        Raises:
            UsageError: For an unknown key or a value that does not fit.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.parser.set_defaults(named_classes(arguments, CLASS_KEYS))
                return self.parser.parse_args(arguments)
        except (ArgumentError, TypeError, ValueError) as error:
            raise explain(error, self.defaults, self.classes_for) from error

    def plain(self, namespace: Namespace) -> dict[str, Any]:
        """Settings as dictionaries, lists and scalars; they give the same when parsed again."""
        text = self.parser.dump(namespace, skip_unset=False)
        plain: dict[str, Any] = yaml.safe_load(text)
        plain.pop("config", None)
        return plain

    def build(self, namespace: Namespace, training: bool = True) -> Built:
        """The objects that settings describe.

        Args:
            namespace: The settings.
            training: Whether a model is to be trained with them, or used.

        Raises:
            ValueError: If two of them do not go together.
        """
        try:
            made = self.parser.instantiate(namespace)
        except (ArgumentError, TypeError, ValueError) as error:
            told = explain_group(namespace) or explain(error, self.defaults, self.classes_for)
            raise ValueError(str(told)) from error
        self.task.check(made.model, made.data, training)
        arguments = dict(vars(made.task.init_args)) if "init_args" in made.task else {}
        return Built(self.task, made.model, arguments, made.data, made.training, made.trainer, self.plain(namespace))


def named_classes(arguments: Sequence[str], keys: Sequence[str]) -> dict[str, Any]:
    """The class that the words, or the config files among them, name for each key.

    Made the parser's defaults, they keep the arguments of the former default class from reaching another class that
    happens to take arguments of the same name: a schedule would inherit a warm-up that nobody asked for.
    """
    found: dict[str, Any] = {}
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        value = value if equals else following
        if option == "--config":
            content = yaml.safe_load(Path(value).read_text(encoding="utf-8") if "\n" not in value else value)
            for key in keys:
                chosen = content
                for name in key.split("."):
                    chosen = (chosen.get(name) if isinstance(chosen, dict) else None) or {}
                chosen = chosen.get("class_path") if isinstance(chosen, dict) else chosen
                found |= {key: chosen} if chosen else {}
        elif (key := option.removeprefix("--")) in keys:
            given = yaml.safe_load(value)
            chosen = given.get("class_path") if isinstance(given, dict) else value
            found |= {key: chosen} if chosen else {}
    return {key: {"class_path": value} for key, value in found.items() if re.fullmatch(r"[A-Za-z_][\w.]*", str(value))}


def all_subclasses(kind: type) -> list[type]:
    """Every class derived from a class that has been imported."""
    children: list[type] = kind.__subclasses__()
    return children + [found for child in children for found in all_subclasses(child)]


def load_task(path: Path, words: Sequence[str] = ()) -> tuple[Task, Built]:
    """A trained task from its checkpoint, in evaluation mode, and what its settings describe.

    Only tensors and plain types are read from the file, and only classes of Polyformer, or of the tasks found where the
    user works, are built.

    Args:
        path: The checkpoint.
        words: Command-line words that change stored settings, such as `--task.search.beam 1`.

    Raises:
        ValueError: If the file is no checkpoint, names a class from elsewhere, or has weights for fewer places than asked.
    """
    content = read_checkpoint(path)
    stored = content["polyformer"]
    try:
        used = {key: stored["settings"][key] for key in ("task", "model", "data", "seed")}
    except (KeyError, TypeError):
        raise ValueError(f"{path}: this checkpoint lacks the settings that it was trained with") from None
    check_classes(used, str(path))
    parser = TaskParser(task_class(used["task"]["class_path"]))
    built = parser.build(parser.parse(["--config", yaml.safe_dump(used, sort_keys=False), *words]), training=False)
    assets = Assets.from_dict(stored["assets"])
    built.data.use_assets(assets)
    task = built.make_task(assets)
    weights, made = merge_differences(content["state_dict"]), task.state_dict()
    changed = [name for name, value in weights.items() if name in made and made[name].shape != value.shape]
    if changed:
        owner = task.get_submodule(changed[0].rpartition(".")[0])
        others = f", or with one that has no limit, as {owner.without_limit}" if isinstance(owner, Limited) else ""
        raise ValueError(
            f"{path}: `model.max_length` cannot be changed, since {changed[0]} of {type(owner).__name__} is made for it; train "
            f"with a larger one{others}"
        )
    task.load_state_dict(weights)
    return task.eval(), built


def check_classes(settings: dict[str, Any], where: str) -> None:
    """Refuses settings that name anything but a class of Polyformer or of the tasks found.

    What a checkpoint stores names each class in full, under `class_path`. So a string that could be an import path
    anywhere else in what makes a network is refused as well, before anything is imported for it.

    Raises:
        ValueError: Naming what was found.
    """
    tasks = find_tasks()
    allowed = {kind.__module__ for kind in tasks.values()}
    for key in ("task", "data"):
        if not isinstance(settings.get(key), dict) or "class_path" not in settings[key]:
            raise ValueError(f"{where}: refused, since its `{key}` is not a class with its options")
    for key, name in (("task", "tasks"), ("data", "parts")):  # a bare name in these would be looked for by importing it
        several = (settings[key].get("init_args") or {}).get(name)
        if isinstance(several, dict) and not all(isinstance(one, dict) and "class_path" in one for one in several.values()):
            raise ValueError(f"{where}: refused, since its `{key}.{name}` are not classes with their options")
    for key, value in _strings(settings):
        is_class = key == "class_path"
        if is_class and not _is_ours(value, allowed):
            raise ValueError(
                f"{where}: refused, since it names `{value}`, which is neither a class of Polyformer's nor in the `tasks/` "
                f"folder here{tasks.warning}"
            )
    for key, value in _strings(settings["model"]):
        if key not in ("class_path", "init_from") and "." in value and all(part.isidentifier() for part in value.split(".")):
            raise ValueError(f"{where}: refused, since its `model` names `{value}`")


def _strings(settings: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every string in nested settings, with the key it stands at."""
    if isinstance(settings, str):
        yield key, settings
    elif isinstance(settings, dict):
        for name, value in settings.items():
            yield from _strings(value, name)
    elif isinstance(settings, list):
        for value in settings:
            yield from _strings(value, key)


def _is_ours(path: str, allowed: set[str]) -> bool:
    """Whether a dotted path is where a class of ours was defined; only our own modules are imported to find out."""
    module, _, name = path.rpartition(".")
    if module not in allowed and module.split(".")[0] != "polyformer":
        return False
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return False
    return isinstance(found, type) and (found.__module__.startswith("polyformer.") or found.__module__ in allowed)
