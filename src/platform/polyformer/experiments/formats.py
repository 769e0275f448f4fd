"""Comparisons as text: Markdown, CSV and JSON."""

import csv
import io
import math
from collections.abc import Sequence

from polyformer.experiments.comparison import Column, Comparison, plain
from polyformer.experiments.field import field_of
from polyformer.experiments.rows import Measured
from polyformer.experiments.settings import in_words
from polyformer.experiments.significance import Verdict
from polyformer.plain import to_json

__all__ = ["as_csv", "as_json", "as_markdown", "commands_of", "shown", "table_of", "verdict_lines"]

NONE = "\u2013"


def shown(cell: Measured, kind: str) -> str:
    """A mean and its spread for a reader.

    >>> shown(Measured((2.0, 4.0), 2), "number"), shown(Measured((61.0,), 2), "seconds"), shown(Measured((), 1), "bytes")
    ('3.0 \u00b1 1.4', '61 s (1 of 2)', '\u2013')
    >>> shown(Measured((0.5, 0.5), 2), "number")
    '0.5 \u00b1 0'
    """
    if cell.mean is None:
        return NONE
    divisor, unit, decimals = _scale(cell.mean, kind)
    if kind == "number" and cell.spread:
        decimals = max(0, min(6, 1 - math.floor(math.log10(cell.spread))))  # two digits of the spread
        text = f"{cell.mean:.{decimals}f} \u00b1 {cell.spread:.{decimals}f}"
    elif kind == "number":
        text = f"{cell.mean:.4g}" if abs(cell.mean) < 10_000 else f"{cell.mean:,.0f}"
        text += " \u00b1 0" if cell.spread is not None else ""
    else:
        text = f"{cell.mean / divisor:,.{decimals}f}"
        text += f" \u00b1 {cell.spread / divisor:,.{decimals}f}" if cell.spread else ""
    few = f" ({len(cell.values)} of {cell.runs})" if len(cell.values) < cell.runs else ""
    return f"{text}{unit}{few}"


def _scale(value: float, kind: str) -> tuple[float, str, int]:
    """What a quantity is divided by for its unit, the unit, and the decimals."""
    if kind == "bytes":
        return (1e9, " GB", 2) if value >= 1e9 else (1e6, " MB", 0)
    if kind == "seconds":
        if value < 600:
            return 1.0, " s", 0 if value >= 10 else 1
        return (60.0, " min", 1) if value < 36_000 else (3600.0, " h", 1)
    return 1.0, "", 0


def table_of(comparison: Comparison, strong: str = "{}") -> tuple[list[str], list[list[str]]]:
    """Titles and cells in words.

    Args:
        comparison: What is to be written.
        strong: How the best is marked.
    """
    settings = comparison.settings or ["run"]
    titles = [*settings, "seeds", *(column.title for column in comparison.columns)]
    lines = []
    for place, row in enumerate(comparison.rows):
        told = [in_words(row.differences[key]) if key in row.differences else NONE for key in comparison.settings] or [row.name]
        cells = [_cell(column, place, strong) for column in comparison.columns]
        lines.append([*told, str(len(row.runs)), *cells])
    return titles, lines


def _cell(column: Column, place: int, strong: str) -> str:
    text = shown(column.cells[place], column.kind)
    return strong.format(text) if place in column.best else text


def shown_p(p: float) -> str:
    """A p-value, which is never 0 but may be too small for a number.

    >>> shown_p(0.0479), shown_p(0.0)
    ('p = 0.0479', 'p < 1e-300')
    """
    return f"p = {p:.3g}" if p else "p < 1e-300"


def verdict_lines(verdict: Verdict) -> list[str]:
    """A test in words."""
    seeds = f"seed {verdict.seeds[0]}" if verdict.seeds[0] == verdict.seeds[1] else "seeds {} and {}".format(*verdict.seeds)
    head = f"{verdict.second} against {verdict.first} ({seeds})"
    if verdict.refusal:
        return [f"{head}: not tested: {verdict.refusal}"]
    return [
        f"{head}: {one.what} {one.second:.4g} against {one.first:.4g}, {shown_p(one.p)} ({verdict.method}; {one.said})"
        for one in verdict.figures
    ]


def commands_of(comparison: Comparison) -> list[list[str]]:
    """Row, seed and command of each run of a sweep; its budget is in the command."""
    return [[row.name, str(run.seed), run.command] for row in comparison.rows for run in row.runs if run.command]


def as_markdown(comparisons: Sequence[Comparison], examples: bool = True) -> str:
    """Tables that a README takes.

    Args:
        comparisons: What is to be written.
        examples: Whether the examples that differ most follow.
    """
    parts = []
    for comparison in comparisons:
        order = f", best {comparison.ranked_by} first" if comparison.ranked_by else ", not ranked"
        parts.append(f"## {comparison.task}{order if len(comparison.rows) > 1 else ''}")
        parts.append(_markdown_table(*table_of(comparison, "**{}**")))
        said = [*map(str, comparison.refused), *comparison.notes]
        said += [line for verdict in comparison.verdicts for line in verdict_lines(verdict)]
        if said:
            parts.append("\n".join(f"- {line}" for line in said))
        for verdict in comparison.verdicts if examples else ():
            if verdict.examples:
                parts.append(f"### Where {verdict.second} and {verdict.first} differ most")
                cells = [[str(one.number), one.input, one.reference, one.first, one.second] for one in verdict.examples]
                parts.append(_markdown_table(["example", "input", "reference", verdict.first, verdict.second], cells))
        if commands := commands_of(comparison):
            cells = [[name, seed, f"`{command}`"] for name, seed, command in commands]
            parts += ["### Commands", _markdown_table(["run", "seed", "command"], cells)]
    field = field_of(comparisons)
    if field is not None:
        parts += [f"## {field.task}", _markdown_table(*table_of(field, "**{}**"))]
    return "\n\n".join(parts) + "\n"


def _markdown_table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns in their width, so that it can be read as it is."""
    rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in (titles, *lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    written = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([written[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *written[1:]])


def as_csv(comparisons: Sequence[Comparison]) -> str:
    """One row for each row and task, in plain numbers: means, and spreads beside them."""
    lines = []
    for comparison in comparisons:
        for place, row in enumerate(comparison.rows):
            line = {"task": comparison.task, **{key: in_words(value) for key, value in row.differences.items()}}
            line |= {"runs": " ".join(str(run.path) for run in row.runs), "seeds": " ".join(str(run.seed) for run in row.runs)}
            for column in comparison.columns:
                cell = column.cells[place]
                line[column.title] = "" if cell.mean is None else repr(cell.mean)
                line[f"{column.title} (spread)"] = "" if cell.spread is None else repr(cell.spread)
            lines.append(line)
    names = list(dict.fromkeys(name for line in lines for name in line))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def as_json(comparisons: Sequence[Comparison]) -> str:
    """All of it; what the same settings came to in several tasks comes last, without the runs that are told with each task."""
    field = field_of(comparisons)
    together = [] if field is None else [plain(field)]
    for row in (row for one in together for row in one["rows"]):
        del row["runs"]
    return to_json([*map(plain, comparisons), *together], indent=2) + "\n"
