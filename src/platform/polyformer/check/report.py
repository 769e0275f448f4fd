"""The ledger as people and programs read it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from polyformer.check.law import Finding, NotApplicable
from polyformer.check.ledger import LAWS, words_of
from polyformer.check.subject import Subject

__all__ = ["described", "line_of", "plain", "summary_of"]

SHOWN = {"pass": "pass", "warning": "warning", "fail": "FAIL", "not applicable": "-"}
WIDTH = max(len(words_of(law)) for law in LAWS)


def described(subject: Subject) -> list[str]:
    """What is judged, and with what."""
    task = subject.task
    count = sum(parameter.numel() for parameter in task.parameters())
    network = type(getattr(task, "network", task)).__name__
    lines = [f"{type(task).__name__}: all of {network} ({count:,} parameters), {subject.weights}, float32 on {subject.device}"]
    try:
        sizes = sorted(len(text.tokens) for text in subject.texts)
        kind = "texts of the training data" if subject.has_own_texts else "texts of random tokens"
        lines.append(f"{len(sizes)} {kind}, of {sizes[0]} to {sizes[-1]} tokens")
    except NotApplicable as reason:
        lines.append(str(reason))
    return [*lines, *([f"without data: {subject.reading.missing}"] if subject.reading.missing else [])]


def line_of(finding: Finding) -> str:
    """One law in one line: outcome, law, the largest difference and what is accepted, and what was run or is wrong."""
    result = finding.result
    numbers = "" if result.difference is None else f"{result.difference:7.1e} <= {result.tolerance:.1e}"
    if result.difference is not None and result.outcome in ("fail", "warning"):
        numbers = numbers.replace("<=", " >")
    told = f"not applicable: {result.what}" if result.outcome == "not applicable" else result.what
    return f"{SHOWN[result.outcome]:8}{finding.says:{WIDTH}}  {numbers:18}  {told}".rstrip()


def summary_of(findings: Sequence[Finding], seconds: float) -> str:
    """How many laws hold."""
    counts = Counter(finding.result.outcome for finding in findings)
    told = [f"{counts['pass']} hold", f"{counts['fail']} broken"]
    told += [f"{counts[outcome]} {words}" for outcome, words in OTHERS if counts[outcome]]  # type: ignore[index]
    return f"{len(findings)} laws: {', '.join(told)}; {seconds:.0f} s"


OTHERS = (("warning", "with a warning"), ("not applicable", "not applicable"))


def plain(subject: Subject, findings: Sequence[Finding]) -> dict[str, Any]:
    """All of it in plain values."""
    laws = [
        {"group": one.group, "law": one.law, "says": one.says, "outcome": one.result.outcome,
         "difference": one.result.difference, "tolerance": one.result.tolerance, "what": one.result.what}
        for one in findings
    ]  # fmt: skip
    broken = any(one.result.outcome == "fail" for one in findings)
    return {"subject": described(subject), "holds": not broken, "laws": laws}
