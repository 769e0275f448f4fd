"""Whether two runs differ by more than chance on the same test examples, and on which examples they differ most."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import sacrebleu

from polyformer.experiments.rows import Row
from polyformer.experiments.runs import Run
from polyformer.experiments.statistics import mcnemar, paired_bootstrap, sign_test, translation_bootstrap

__all__ = ["Example", "Figure", "Verdict", "verdicts_of"]

FEWEST = 10  # examples that a test makes sense with

Lines = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """One test.

    Args:
        what: What was measured, such as `BLEU`.
        first: Of the first run.
        second: Of the second.
        p: The p-value.
        said: What else there is to say, such as an interval.
    """

    what: str
    first: float
    second: float
    p: float
    said: str


@dataclass(frozen=True)
class Example:
    """One test example and what two runs made of it.

    Args:
        number: From 0, in the order of the test data.
        input: What was read.
        reference: What would have been right.
        first: What the first run made of it.
        second: What the second did.
    """

    number: int
    input: str
    reference: str
    first: str
    second: str


@dataclass(frozen=True)
class Verdict:
    """Two runs on the same test.

    Args:
        first: The row of the first, the baseline.
        second: The row of the second.
        seeds: Of the two runs.
        method: Which test was used.
        figures: What came out.
        examples: Those that differ most.
        refusal: Why there is no test; then there is nothing else.
    """

    first: str
    second: str
    seeds: tuple[int, int]
    method: str = ""
    figures: list[Figure] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    refusal: str = ""


def verdicts_of(baseline: Row, others: Sequence[Row], shown: int = 10) -> list[Verdict]:
    """The baseline against each other row: for every seed that both have, or else for the first run of each.

    Args:
        baseline: The row that the others are held against.
        others: The other rows.
        shown: How many examples that differ most are kept, for the first pair of runs of each row.
    """
    found = []
    for row in others:
        second_by_seed = {run.seed: run for run in row.runs}
        pairs = [(run, second_by_seed[run.seed]) for run in baseline.runs if run.seed in second_by_seed]
        for place, (first, second) in enumerate(pairs or [(baseline.runs[0], row.runs[0])]):
            found.append(_verdict(baseline.name, row.name, first, second, shown if place == 0 else 0))
    return found


def _verdict(first_name: str, second_name: str, first: Run, second: Run, shown: int) -> Verdict:
    names, seeds = (first_name, second_name), (first.seed, second.seed)
    for run in (first, second):
        if not run.examples:
            return Verdict(*names, seeds, refusal=run.no_examples)
    one, two = first.examples, second.examples
    if said := _others(first, second):
        return Verdict(*names, seeds, refusal=said)
    if len(one) < FEWEST:
        return Verdict(*names, seeds, refusal=f"{len(one)} test examples are too few; at least {FEWEST} are needed")
    found, signatures = Verdict(*names, seeds), [run.results.get("signatures", {}).get("bleu") for run in (first, second)]
    for part in dict.fromkeys(str(line.get("part", "")) for line in one):
        places = [place for place, line in enumerate(one) if line.get("part", "") == part]
        test = _test_for(one[places[0]], signatures) if len(places) >= FEWEST else None
        if test is not None:
            own = _Pairs([one[place] for place in places], [two[place] for place in places], places)
            found = _joined(found, part, test, own, shown)
    return found if found.figures else Verdict(*names, seeds, refusal=f"there is no test for {first.task}")


@dataclass(frozen=True)
class _Pairs:
    """What two runs made of the same examples, and the numbers of these."""

    one: Lines
    two: Lines
    numbers: list[int]


@dataclass(frozen=True)
class _Test:
    """A test for one kind of examples."""

    method: str
    figures: Callable[[Lines, Lines], list[Figure]]
    distance: Callable[[Any, Any], float]


def _test_for(line: dict[str, Any], bleu: Sequence[str | None]) -> _Test | None:
    """The test for an example like this one; none without the first run's signature of BLEU where it is a translation.

    Args:
        line: Of the first run.
        bleu: The signatures of both runs.
    """
    if "nats" in line:
        return _Test("paired bootstrap over documents, sign test", _documents, _loss_apart)
    if "correct" in line:
        return _Test("McNemar's test", _answers, _right_apart)
    first, second = bleu
    if first is None:
        return None
    both = f" for both, though the second was measured with {_tokenization(second)}" if second not in (first, None) else ""
    method = f"paired bootstrap of sacreBLEU's, BLEU with {_tokenization(first)}{both}"
    return _Test(method, partial(_translations, _tokenization(first)), _chrf_apart)


def _tokenization(signature: str | None) -> str:
    """How a signature of sacreBLEU's says that texts are cut."""
    return next((part for part in (signature or "").split("|") if part.startswith("tok:")), "tok:13a")


def _joined(verdict: Verdict, part: str, test: _Test, pairs: _Pairs, shown: int) -> Verdict:
    """A verdict with what a test says of one part of the examples."""
    figures = test.figures(pairs.one, pairs.two)
    named = [replace(one, what=f"{part}: {one.what}") for one in figures] if part else figures
    method = ", ".join(dict.fromkeys([*filter(None, [verdict.method]), test.method]))
    examples = [*verdict.examples, *_most(pairs, test.distance, shown)]
    return replace(verdict, method=method, figures=[*verdict.figures, *named], examples=examples)


def _identities(lines: Lines) -> list[Any]:
    """What tells test examples apart: what would have been right, or of running text how it begins and how long it is."""
    told = (line["reference"] if "reference" in line else (line["input"], line["bytes"]) for line in lines)
    return [(line.get("part"), one) for line, one in zip(lines, told, strict=True)]


def _others(first: Run, second: Run) -> str:
    """Why the test examples of two runs are not the same; nothing where they are."""
    one, two = first.examples, second.examples
    digests = {digest for run in (first, second) if (digest := _digest(run))}
    if len(digests) < 2 and _identities(one) == _identities(two):
        return ""
    said = f"the test examples are not the same ({len(one):,} and {len(two):,} of them)"
    if len(digests) != 1 or len(one) != len(two) or "nats" not in one[0]:
        return said
    commands = " and ".join(run.anew for run in (first, second))
    return f"{said}, or one tokenizer loses characters and they were kept as it decodes them; keep them as they are: {commands}"


def _digest(run: Run) -> str | None:
    """What tells the run's test data from others; None where that was not written down."""
    digest: str | None = run.results.get("fingerprints", {}).get("test")
    return digest


def _translations(tokenization: str, one: Lines, two: Lines) -> list[Figure]:
    metrics = {"BLEU": sacrebleu.BLEU(tokenize=tokenization.removeprefix("tok:")), "chrF": sacrebleu.CHRF()}
    first, second = ([str(line["output"]) for line in lines] for lines in (one, two))
    found = translation_bootstrap(first, second, [str(line["reference"]) for line in one], metrics)
    return [
        Figure(name, each.first, each.second, each.p, f"second {each.second:.2f} \u00b1 {each.margin:.2f} (95 % interval)")
        for name, each in found.items()
    ]


def _answers(one: Lines, two: Lines) -> list[Figure]:
    pairs = [(bool(first["correct"]), bool(second["correct"])) for first, second in zip(one, two, strict=True)]
    first_only, second_only = pairs.count((True, False)), pairs.count((False, True))
    shares = [sum(pair[side] for pair in pairs) / len(pairs) for side in (0, 1)]
    said = f"only the first is right on {first_only:,}, only the second on {second_only:,} of {len(pairs):,}"
    return [Figure("share right", shares[0], shares[1], mcnemar(first_only, second_only), said)]


def _documents(one: Lines, two: Lines) -> list[Figure]:
    """Nats per byte of text, since bytes are the same for every tokenizer; and in how many documents each is lower."""
    losses = [[float(line["nats"]) for line in lines] for lines in (one, two)]
    sizes = [float(line["bytes"]) for line in one]
    interval = paired_bootstrap(losses[0], losses[1], sizes)
    first, second = (sum(each) / sum(sizes) for each in losses)
    said = f"difference {interval.difference:+.5f}, 95 % interval {interval.low:+.5f} to {interval.high:+.5f}"
    lower = sum(a < b for a, b in zip(*losses, strict=True))
    higher = sum(a > b for a, b in zip(*losses, strict=True))
    shares = lower / len(sizes), higher / len(sizes)
    counted = f"lower loss: the first in {lower:,}, the second in {higher:,} of {len(sizes):,} documents"
    return [
        Figure("nats per byte", first, second, interval.p, said),
        Figure("share of documents with the lower loss", *shares, sign_test(lower, higher), counted),
    ]


def _most(pairs: _Pairs, distance: Callable[[Any, Any], float], shown: int) -> list[Example]:
    """The examples on which two runs are furthest apart, as many on one side as on the other where there are."""
    if not shown:
        return []
    apart = [distance(first, second) for first, second in zip(pairs.one, pairs.two, strict=True)]
    order = sorted(range(len(apart)), key=lambda number: apart[number])
    half = shown // 2
    chosen = [number for number in order[:half] if apart[number] < 0]
    chosen += [number for number in reversed(order[-half:]) if apart[number] > 0]
    found = []
    for number in chosen:
        first, second = pairs.one[number], pairs.two[number]
        read, true = str(first.get("input", "")), str(first.get("reference", ""))
        found.append(Example(pairs.numbers[number], read, true, _said(first), _said(second)))
    return found


def _said(line: dict[str, Any]) -> str:
    return f"{line['nats'] / line['bytes']:.4f} nats per byte" if "nats" in line else str(line["output"])


def _loss_apart(first: dict[str, Any], second: dict[str, Any]) -> float:
    return float(first["nats"] - second["nats"]) / float(first["bytes"])


def _right_apart(first: dict[str, Any], second: dict[str, Any]) -> float:
    return float(second["correct"]) - float(first["correct"])


def _chrf_apart(first: dict[str, Any], second: dict[str, Any]) -> float:
    metric, references = sacrebleu.CHRF(), [str(first["reference"])]
    scores = [metric.sentence_score(str(line["output"]), references).score for line in (first, second)]
    return scores[1] - scores[0]
