"""Runs in TensorBoard: event files in the run folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from polyformer.training.tracking import Start, Tracker

__all__ = ["TensorBoard"]


class TensorBoard(Tracker):
    """Writes event files to `tensorboard/` in the run folder.

    Raises:
        ValueError: If the package is not installed.
    """

    title = "TensorBoard"

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ValueError("`logger` tensorboard needs a package that is not installed: pip install tensorboard") from None
        self._make_writer: Any = SummaryWriter
        self._writer: Any = None

    def start(self, start: Start) -> None:
        """Rows of an earlier session beyond the step that training goes on from are not shown."""
        folder = str(start.run.path / "tensorboard")
        self._writer = self._make_writer(folder, purge_step=start.step + 1 if start.step else None)
        for name, content in (("settings", start.settings), ("facts", start.facts)):
            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
            self._writer.add_text(name, "\n".join(f"    {line}" for line in text.splitlines()), start.step)

    def metrics(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def best(self, metrics: dict[str, float]) -> None:
        """Nothing: TensorBoard keeps no summaries."""

    def samples(self, rows: Sequence[dict[str, Any]]) -> None:
        """Those of the last validation, as a table for each step."""
        step = rows[-1]["step"]
        now = [{name: value for name, value in row.items() if name != "step"} for row in rows if row["step"] == step]
        columns = list(dict.fromkeys(name for row in now for name in row))
        lines = [columns, ["---"] * len(columns), *([_cell(row.get(name)) for name in columns] for row in now)]
        self._writer.add_text("samples", "\n".join(f"| {' | '.join(line)} |" for line in lines), step)

    def finish(self, results: dict[str, Any], pictures: dict[str, Path]) -> None:
        from matplotlib.image import imread

        step = results["steps"]
        self.metrics({name: value for name, value in results["metrics"].items() if name.startswith("test/")}, step)
        for name, path in pictures.items():
            self._writer.add_image(name, imread(path), step, dataformats="HWC")

    def end(self, failed: bool) -> None:
        self._writer.close()


def _cell(value: Any) -> str:
    """A value in a table of Markdown's.

    >>> _cell("a|b"), _cell(0.123456)
    ('a\\\\|b', '0.1235')
    """
    shown = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return shown.replace("|", "\\|").replace("\n", "<br>")
