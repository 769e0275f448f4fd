"""`platform compare`: runs side by side."""

import sys
from collections.abc import Sequence
from pathlib import Path

from polyformer.cli.help import COMPARE
from polyformer.cli.online import online_run
from polyformer.cli.words import flag, option, refuse_rest
from polyformer.errors import UsageError
from polyformer.experiments.comparison import Comparison, compare_runs
from polyformer.experiments.formats import as_csv, as_json, as_markdown
from polyformer.experiments.rows import Mark
from polyformer.experiments.runs import find_runs

__all__ = ["compare"]

OPTIONS = ["--metrics", "--by", "--mark", "--baseline", "--format", "--output", "--curves", "--no-tests"]
FORMATS = ("md", "csv", "json", "html")


def compare(words: list[str]) -> int:
    """Prints or writes the comparison."""
    if {"-h", "--help"}.intersection(words):
        print(COMPARE)
        return 0
    output, curves = option(words, "--output"), option(words, "--curves")
    form = _form(option(words, "--format"), output)
    metrics, by, baseline = option(words, "--metrics"), option(words, "--by"), option(words, "--baseline")
    marks, tested = _marks(words), not flag(words, "--no-tests")
    places = [word for word in words if not word.startswith("-")]
    refuse_rest([word for word in words if word.startswith("-")], OPTIONS)
    if not places:
        raise UsageError("say what is to be compared: platform compare RUN RUN ..., or the folder of a sweep")
    if curves is not None:
        _check_picture(Path(curves))
    chosen = [name for name in (metrics or "").split(",") if name]
    comparisons = compare_runs(find_runs(places, online_run), chosen, by, marks, baseline, tested)
    text = _text(comparisons, form, f"Comparison of {', '.join(places)}")
    if output is None:
        sys.stdout.write(text)
    else:
        _write(Path(output), text)
    if curves is not None:
        _draw(comparisons, Path(curves))
    return 0


def _form(name: str | None, output: str | None) -> str:
    """The format: as it is given, or what the output's name ends in, or Markdown.

    Raises:
        UsageError: For one that there is not.
    """
    ending = Path(output).suffix.lower().removeprefix(".") if output is not None else ""
    form = name or (ending if ending in FORMATS else "md")
    if form not in FORMATS:
        raise UsageError(f"--format must be {', '.join(FORMATS)}, but is {form}")
    return form


def _text(comparisons: Sequence[Comparison], form: str, title: str) -> str:
    """The comparisons in a format; what a table of numbers has no room for is said on standard error."""
    if form == "html":
        from polyformer.experiments.page import as_page

        return as_page(comparisons, title)
    if form == "csv":
        for line in (line for one in comparisons for line in (*one.refused, *one.notes)):
            print(line, file=sys.stderr)
    return {"md": as_markdown, "csv": as_csv, "json": as_json}[form](comparisons)


def _marks(words: list[str]) -> list[Mark]:
    """Every `--mark METRIC=VALUE`.

    Raises:
        UsageError: For one that is neither.
    """
    found = []
    while (said := option(words, "--mark")) is not None:
        metric, _, value = said.rpartition("=")
        try:
            found.append(Mark(metric, float(value)))
        except ValueError:
            raise UsageError(f"--mark must be METRIC=VALUE, such as val/loss=3.0, but is {said}") from None
    return found


def _check_picture(path: Path) -> None:
    """Refuses a picture that cannot be written.

    Raises:
        UsageError: For its name, or for its folder.
    """
    from polyformer.experiments.plots import SUFFIXES  # matplotlib takes longer than the rest of the command

    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--curves {path}: its name must end in {', '.join(SUFFIXES)}")
    if not path.resolve().parent.is_dir():
        raise UsageError(f"--curves {path}: there is no folder {path.parent}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {path}: cannot be written: {error.strerror}") from None
    print(path)


def _draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """One picture, or one for each task, named after it."""
    from polyformer.experiments.curves import curves_of
    from polyformer.experiments.plots import save_figure

    for comparison in comparisons:
        target = path if len(comparisons) == 1 else path.with_stem(f"{path.stem}_{comparison.task}")
        figure = curves_of(comparison)
        if figure is None:
            print(f"{comparison.task}: there are no curves that may be compared", file=sys.stderr)
            continue
        save_figure(figure, target)
        print(target, file=sys.stderr)
