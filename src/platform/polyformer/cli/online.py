"""Runs that lie on Weights & Biases instead of here."""

from pathlib import Path

from polyformer.experiments.online import OnlineRun

__all__ = ["online_run"]


def online_run(path: str) -> OnlineRun:
    """The run at `entity/project/run`.

    Raises:
        ValueError: If Weights & Biases cannot be reached, or has no such run.
    """
    import wandb

    from polyformer.training.weights_and_biases import obstacle

    wandb.setup(wandb.Settings(silent=True))
    if said := obstacle():
        raise ValueError(f"wandb:{path}: Weights & Biases cannot be asked: {said}")
    try:
        return OnlineRun(Path(path), wandb.Api().run(path))
    except (wandb.errors.Error, ValueError) as error:
        raise ValueError(f"wandb:{path}: {str(error).strip().partition(chr(10))[0]}") from None
