"""What is shown: our own lines, not the libraries' advertising and harmless warnings."""

import logging
import sys
import warnings
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

__all__ = ["quiet", "show_log"]


class _Kept(logging.FileHandler):
    """Lines in a file; what a full disk has no room for has been shown all the same."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing, in place of a traceback for each line."""


def quiet() -> None:
    """Silences what lightning, datasets and torch say that no user can act on."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning", "datasets", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for pattern in (
        ".*does not have many workers.*",
        ".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*",
        ".*Precision 16-mixed is not supported by the model summary.*",
        ".*tensorboardX.*",
        ".*You are using `torch.load` with.*",
        ".*lr_scheduler.step\\(\\).*before.*optimizer.step\\(\\).*",
        ".*Trying to infer the `batch_size`.*",
        ".*exists and is not empty.*",
        ".*is smaller than the logging interval.*",
        ".*GPU available but not used.*",
        ".*when logging on epoch level in distributed setting.*",  # every rank has the figures of all
        ".*grad attribute of a Tensor that is not a leaf.*",  # torch.compile looks at all tensors it meets
        ".*across ranks is zero.*",  # no validation data
        ".*in eval mode at the start of training.*",  # frozen parts
        ".*dataloader is not resumable.*",  # the position is in the data module's state
    ):
        warnings.filterwarnings("ignore", message=pattern)


def show_log(file: Path | None = None) -> None:
    """Sends our log to the terminal, and to a file if there is one."""
    log = logging.getLogger("polyformer")
    log.setLevel(logging.DEBUG)
    log.handlers.clear()
    shown: logging.Handler = logging.StreamHandler()
    if sys.stderr.isatty():
        shown = RichHandler(console=Console(stderr=True), show_level=False, show_path=False, show_time=False)
    shown.setLevel(logging.INFO)
    log.addHandler(shown)
    log.propagate = False
    if file is not None:
        kept = _Kept(file, encoding="utf-8")
        kept.setFormatter(logging.Formatter("%(asctime)s  %(message)s", "%Y-%m-%d %H:%M:%S"))
        log.addHandler(kept)
