"""What trainings will be judged by, found out before they begin."""

import sys
from collections.abc import Sequence

from polyformer.cli.settings import parse_settings
from polyformer.training.chains import Beginning
from polyformer.training.facts import judged_by

__all__ = ["judged"]


def judged(words: Sequence[str], metric: str | None) -> tuple[str, str]:
    """The metric that a training is judged by, and its better side.

    A task may choose both by its data, as classification does by the kind of its labels: so one is made. Where the data is
    not here, it is what the task's class says, which is then said.

    Args:
        words: Those of `platform fit`.
        metric: The one that was asked for; None: what checkpoints are judged by.

    Raises:
        ValueError: For settings that do not go together.
    """
    parser, settings = parse_settings(list(words))
    built = parser.build(settings)
    wanted = metric or built.recipe.monitor
    try:
        if built.options.init_from is not None:
            Beginning(built.options.init_from).give_tokenizer(built.data)
        return judged_by(built.make_task(built.data.assets), wanted)
    except (OSError, ValueError) as error:
        name, side = judged_by(built.task, wanted)
        print(f"no data is here to ask ({error}), so what is made better is taken to be {name}, by its {side}", file=sys.stderr)
        return name, side
