"""Language models that were trained on short windows read longer ones: bits per byte by position and length.

    platform sweep configs/compare/lengths.yaml
    python benchmarks/lengths.py runs/lengths --chart docs/pictures/lengths.png

Every run in the folder is measured on its test text in windows of each length, `--stride` tokens from one to the next: each
token is scored once, the same tokens at every length, and all but the first ones with at least length - stride tokens before
them. Rotary positions are measured as they are, and with each scaling by the factor of the lengths where texts are longer than
those of training. What a position refuses is said beneath the table.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

LENGTHS = [256, 512, 1024]
SCALINGS = ["LinearScaling", "NTKScaling", "YaRNScaling"]
Rows = dict[str, dict[int, float]]


def main() -> None:
    arguments = options()
    rows: Rows = {}
    refused: dict[str, str] = {}
    for run in sorted(path.parent for path in arguments.folder.glob("*/config.yaml")):
        for name, words, lengths in readings(run, arguments.lengths):
            rows[name] = {}
            for length in lengths:
                found = measured(run, length, arguments.stride, words(length))
                print(f"  {name}, {length:,} tokens: {found}", file=sys.stderr, flush=True)
                if isinstance(found, str):
                    refused[name] = found
                else:
                    rows[name][length] = found
    print("\n".join(table(rows, arguments.lengths, refused)))
    if arguments.json:
        arguments.json.write_text(json.dumps({"bits_per_byte": rows, "refused": refused, "stride": arguments.stride}, indent=1))
    if arguments.chart:
        draw(rows, arguments.lengths, arguments.stride, arguments.chart)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of runs of language models")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="of the windows, in tokens")
    parser.add_argument("--stride", type=int, default=128, help="tokens from one window to the next")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--chart", type=Path, help="where to draw them: .png, .svg or .pdf")
    return parser.parse_args()


def readings(run: Path, lengths: Sequence[int]) -> Iterator[tuple[str, Any, list[int]]]:
    """The ways to read with a run: a name, the words for a length, and the lengths."""
    model = yaml.safe_load((run / "config.yaml").read_text())["model"]
    position, trained = model["position"]["class_path"].rpartition(".")[2], model["max_length"]
    yield position, lambda length: [], list(lengths)
    for scaling in SCALINGS if position == "Rotary" else []:

        def words(length: int, scaling: str = scaling) -> list[str]:
            key = "--model.position.scaling"
            own = [f"{key}.trained_length", str(trained)] if scaling == "YaRNScaling" else []
            return [key, scaling, f"{key}.factor", str(length / trained), *own]

        yield f"Rotary, {scaling}", words, [length for length in lengths if length > trained]


def measured(run: Path, length: int, stride: int, words: list[str]) -> float | str:
    """Bits per byte of the test text, or why there are none."""
    from polyformer.cli import main as platform

    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder) / "test.json"
        where = ["--data.window", str(length), "--data.stride", str(stride), "--model.max_length", str(length)]
        if platform(["test", "--ckpt_path", str(run), "--json", str(file), *where, *words]):
            return said.getvalue().strip().splitlines()[-1].partition(f"{run}/")[2].partition(": ")[2]
        return float(json.loads(file.read_text())["metrics"]["test/bits_per_byte"])


def table(rows: Rows, lengths: Sequence[int], refused: dict[str, str]) -> list[str]:
    """A line for each way to read, a column for each length, the best at the longest first."""
    lines = [
        "| bits per byte | " + " | ".join(f"{length:,}" for length in lengths) + " |",
        "|---" + "|---:" * len(lengths) + "|",
    ]
    for name in sorted(rows, key=lambda name: rows[name].get(max(lengths), float("inf"))):
        cells = [f"{rows[name][length]:.3f}" if length in rows[name] else "-" for length in lengths]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, *(f"{name}: {reason}" for name, reason in refused.items())]


def draw(rows: Rows, lengths: Sequence[int], stride: int, path: Path) -> None:
    """A line for each way to read; bits are cut where they are far above the best."""
    from polyformer.experiments.plots import save_figure
    from polyformer.experiments.plots.style import grid, line_styles, name_axes

    figure, (axes,) = grid(1, 1, 4.2)
    shown = {name: row for name, row in rows.items() if len(row) > 1}
    for (name, row), style in zip(shown.items(), line_styles(len(shown)), strict=True):
        axes.plot([*row], [*row.values()], label=name, **style)
    name_axes(axes, f"test text, windows {stride} tokens apart", "length of the window (tokens)", "bits per byte")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(lengths), [f"{length:,}" for length in lengths])
    least = min(value for row in rows.values() for value in row.values())
    axes.set_ylim(0.97 * least, min(axes.get_ylim()[1], 1.6 * least))
    axes.grid(True, color="0.9", linewidth=0.6)
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)


if __name__ == "__main__":
    main()
