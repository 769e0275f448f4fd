"""A comparison as one HTML page that needs nothing beside itself."""

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

from matplotlib import rc_context

from polyformer.experiments.comparison import Comparison
from polyformer.experiments.curves import curves_of
from polyformer.experiments.field import field_of
from polyformer.experiments.formats import commands_of, table_of, verdict_lines
from polyformer.experiments.significance import Verdict

__all__ = ["as_page"]

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem; color: #1a1a1a; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #ddd; padding: .35rem .7rem; text-align: right; white-space: nowrap; vertical-align: top; }
th.words, td.words { text-align: left; } table.texts td { white-space: pre-wrap; min-width: 12rem; }
table.texts td:first-child { min-width: 0; }
thead th { border-bottom: 2px solid #555; } th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid #0072b2; } th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
td.best { font-weight: 700; background: #e5f1f8; }
.refused { border-left: 4px solid #d55e00; background: #fdf3ec; padding: .5rem 1rem; margin: .8rem 0; }
img { width: 100%; height: auto; } ul { padding-left: 1.2rem; }
"""

SCRIPT = """
for (const head of document.querySelectorAll("table.sortable th")) {
  head.firstElementChild.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], place = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[place].dataset.value ?? row.cells[place].textContent;
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)], known = v => v !== "";
      if (!known(x) || !known(y)) return known(y) - known(x);
      const difference = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return down ? -difference : difference;
    };
    [...body.rows].sort(order).forEach(row => body.append(row));
  });
}
"""


def as_page(comparisons: Sequence[Comparison], title: str) -> str:
    """Tables that a click on a title sorts, learning curves, tests, and the examples that differ most.

    Args:
        comparisons: What is to be written, one for each task.
        title: Of the page.
    """
    field = field_of(comparisons)
    together = [] if field is None else [f"<h2>{escape(field.task)}</h2>", _table(field)]
    body = "\n".join([*(part for comparison in comparisons for part in _section(comparison)), *together])
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n'
        f"</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _section(comparison: Comparison) -> list[str]:
    order = f"the best {comparison.ranked_by} first" if comparison.ranked_by else "not ranked"
    parts = [f"<h2>{escape(comparison.task)}</h2>", f"<p>{escape(order)}</p>" if len(comparison.rows) > 1 else ""]
    parts += [f'<div class="refused">{escape(str(refusal))}</div>' for refusal in comparison.refused]
    parts.append(_table(comparison))
    parts.append(_list(comparison.notes))
    figure = curves_of(comparison)
    if figure is not None:
        parts.append(f"<h3>Learning curves</h3>\n{_picture(figure, f'learning curves of {comparison.task}')}")
    lines = [line for verdict in comparison.verdicts for line in verdict_lines(verdict)]
    if lines:
        parts.append(f"<h3>Tests on the test data</h3>\n{_list(lines)}")
    parts += [_examples(verdict) for verdict in comparison.verdicts if verdict.examples]
    if commands := commands_of(comparison):
        parts.append(f"<h3>Commands</h3>\n{_texts(('run', 'seed', 'command'), commands)}")
    return [part for part in parts if part]


def _table(comparison: Comparison) -> str:
    titles, lines = table_of(comparison)
    named = len(titles) - 1 - len(comparison.columns)  # columns of words, which come first
    heads = "".join(
        f'<th scope="col"{" class=words" if place < named else ""}><button type="button">{escape(title)}</button></th>'
        for place, title in enumerate(titles)
    )
    rows = []
    for number, line in enumerate(lines):
        cells = [f'<td class="words">{escape(cell)}</td>' for cell in line[:named]]
        cells.append(f"<td>{escape(line[named])}</td>")
        for column, cell in zip(comparison.columns, line[named + 1 :], strict=True):
            mean, best = column.cells[number].mean, ' class="best"' if number in column.best else ""
            cells.append(f'<td{best} data-value="{"" if mean is None else repr(mean)}">{escape(cell)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return _wide(f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>')


def _examples(verdict: Verdict) -> str:
    titles = ("example", "input", "reference", verdict.first, verdict.second)
    rows = [[str(value) for value in vars(example).values()] for example in verdict.examples]
    return f"<h3>Where {escape(verdict.second)} and {escape(verdict.first)} differ most</h3>\n{_texts(titles, rows)}"


def _texts(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of words, whose long ones are broken."""
    heads = "".join(f'<th class="words" scope="col">{escape(title)}</th>' for title in titles)
    lines = ["".join(f'<td class="words">{escape(value)}</td>' for value in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return _wide(f'<table class="texts"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>')


def _wide(table: str) -> str:
    return f'<div class="wide" tabindex="0">{table}</div>'


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _picture(figure: Any, said: str) -> str:
    """An image in the page itself, as an SVG whose letters are drawn, so that no font is needed."""
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "polyformer"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight", pad_inches=0.08)
    encoded = base64.b64encode(buffer.getvalue().encode()).decode()
    return f'<img alt="{escape(said)}" src="data:image/svg+xml;base64,{encoded}">'
