"""Which data a run was measured on, as far as its folder says it."""

import re

from polyformer.experiments.runs import Run
from polyformer.experiments.settings import in_words

__all__ = ["evaluation_facts"]

COUNTED = re.compile(r"[\d,]+ (?:documents|bytes|examples|files)\b")
"""What reports count of the same data whatever the tokenizer is."""
CHOSEN = re.compile(r"data\.(parts\.\w+\.)?(source|target|text|second|label|word|document|empty|target\.\w+)")
"""Settings that decide what is read from the same files."""
CUTTING = ("data.batches.evaluation_tokens", "trainer.devices", "trainer.num_nodes")
"""Settings that decide which examples the first batches have."""


def evaluation_facts(run: Run, split: str) -> dict[str, str]:
    """What tells the data that a run was measured on from others.

    Args:
        run: The run.
        split: "validation" or "test".

    Returns:
        "named", "count" and "digest" of the data; and by its key each setting that decides which part of it was used.
    """
    keys = [key for key in sorted(run.settings) if key.endswith((f".{split}", ".evaluation_count", ".language"))]
    named = ", ".join(in_words(run.settings[key]) for key in keys if run.settings[key] is not None)
    report = str(run.results.get("data", {}).get(split, ""))
    return {
        "named": named or str(run.settings.get("data", "unnamed")),
        "count": ", ".join(COUNTED.findall(report)) or report.partition(";")[0],
        "digest": run.results.get("fingerprints", {}).get(split) or "",
        **{key: in_words(value) for key, value in run.settings.items() if CHOSEN.fullmatch(key) and value is not None},
        **_limits(run, split),
    }


def _limits(run: Run, split: str) -> dict[str, str]:
    """The key that limits the batches of a split, and what these are cut by; nothing where all are used."""
    keys = {"validation": ("trainer.overfit_batches", "trainer.limit_val_batches"), "test": ("trainer.limit_test_batches",)}
    key = next((key for key in keys[split] if run.settings.get(key)), None)
    limit = run.settings.get(key) if key is not None else None
    if key is None or (isinstance(limit, float) and limit == 1.0):  # a 1 is one batch
        return {}
    tokenizers = in_words(run.results.get("fingerprints", {}).get("tokenizers"))
    cutting = {name: in_words(run.settings[name]) for name in CUTTING if name in run.settings}
    return {key: in_words(limit), **cutting, "tokenizers": tokenizers}
