"""Which metrics of which runs may be ranked, and why the others may not."""

from collections.abc import Sequence
from dataclasses import dataclass

from polyformer.experiments.evaluation_data import evaluation_facts
from polyformer.experiments.runs import Run
from polyformer.experiments.settings import in_words

__all__ = ["WITHOUT_TOKENS", "Refusal", "refusals"]

PER_TOKEN = ("loss", "perplexity", "accuracy")
WITHOUT_TOKENS = ("bits_per_byte", "word_perplexity")
ALWAYS = ("named", "count", "digest")
"""What is always told of data that differ."""
SPLITS = {"val": "validation", "test": "test"}
COMMAND = "compare the folders NAME that are written by platform {} --ckpt_path RUN --run NAME"


@dataclass(frozen=True)
class Refusal:
    """Metrics that are not to be ranked.

    Args:
        metrics: Their names.
        reason: Why.
        instead: What can be done, or looked at.
    """

    metrics: tuple[str, ...]
    reason: str
    instead: str

    def __str__(self) -> str:
        return f"not ranked by {', '.join(self.metrics)}: {self.reason}; {self.instead}"


def refusals(runs: Sequence[Run], metrics: Sequence[str]) -> list[Refusal]:
    """Why some of the metrics may not be ranked over the runs, all of one task."""
    found = [refusal for split in SPLITS if (refusal := _other_data(runs, metrics, split)) is not None]
    found += _other_signatures(runs, metrics)
    per_token = tuple(name for name in metrics if _short(name) in PER_TOKEN)
    counts_tokens = any(name.endswith("perplexity") for run in runs for name in run.metrics)
    said = _parted(runs, _tokenizers(runs)) if per_token and counts_tokens else ""
    if said:
        free = [name for name in metrics if _short(name) in WITHOUT_TOKENS]
        instead = f"compare {', '.join(free)} instead" if free else "compare what does not count tokens"
        found.append(Refusal(per_token, f"the tokenizers differ ({said}), and these are per token", instead))
    return found


def _short(metric: str) -> str:
    return metric.rpartition("/")[2]


def _other_data(runs: Sequence[Run], metrics: Sequence[str], split: str) -> Refusal | None:
    chosen, long = tuple(name for name in metrics if name.startswith(f"{split}/")), SPLITS[split]
    said = _parted(runs, _contents(runs, long)) if chosen else ""
    if not said:
        return None
    verb = "test" if split == "test" else "validate"
    remedy = f"measure each on the same: {COMMAND.format(verb)} --data.{long} FILES"
    return Refusal(chosen, f"the {long} data differ ({said})", remedy)


def _other_signatures(runs: Sequence[Run], metrics: Sequence[str]) -> list[Refusal]:
    found = []
    for described in dict.fromkeys(name for run in runs for name in run.results.get("signatures", {})):
        chosen = tuple(name for name in metrics if name.partition("/")[2] in _described_with(described))
        signatures = [run.results.get("signatures", {}).get(described, "none") for run in runs]
        said = _parted(runs, [(signature, signature) for signature in signatures]) if chosen else ""
        if said:
            remedy = f"measure them alike: {COMMAND.format('test')}, with the same --task and --data keys"
            found.append(Refusal(chosen, f"the signatures differ ({said})", remedy))
    return found


def _described_with(metric: str) -> list[str]:
    """The metrics that a signature is true of: that of a perplexity is also that of what else is measured for each token."""
    part, slash, short = metric.rpartition("/")
    return [f"{part}{slash}{name}" for name in PER_TOKEN] if short == "perplexity" else [metric]


def _contents(runs: Sequence[Run], split: str) -> list[tuple[str, str]]:
    """For each run what tells its data from others', and how a reader is told: digests where all have them, else names."""
    facts = [evaluation_facts(run, split) for run in runs]
    ignored = "named" if all(one["digest"] for one in facts) else "digest"
    keys = dict.fromkeys(key for one in facts for key in one)
    differing = [key for key in keys if key != ignored and len({one.get(key) for one in facts}) > 1]
    found = []
    for one in facts:
        told = [one[key] for key in ALWAYS if one[key]]
        told += [f"{key} {one.get(key, 'null')}" for key in differing if key not in ALWAYS]
        found.append((in_words([one.get(key) for key in differing]), ", ".join(told)))
    return found


def _tokenizers(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Likewise for tokenizers: fingerprints where all have them, else what they were made of and how."""
    known = [run.results.get("fingerprints", {}).get("tokenizers") for run in runs]
    found = []
    for run, digests in zip(runs, known, strict=True):
        keys = [key for key in run.settings if ".tokenizer." in key and run.settings[key] is not None]
        told = " ".join(in_words(run.settings[key]) for key in keys if key.endswith((".kind", ".vocab_size", ".path")))
        made = [run.settings[key] for key in keys] + [run.settings.get("data.train")]
        found.append((in_words(digests) if all(known) else in_words(made), told or in_words(digests)))
    return found


def _parted(runs: Sequence[Run], said: Sequence[tuple[str, str]]) -> str:
    """What differs, with one run for each; nothing where all are the same.

    Args:
        runs: The runs.
        said: For each what tells it from others, and how a reader is told.
    """
    first: dict[str, str] = {}
    for run, (identity, told) in zip(runs, said, strict=True):
        first.setdefault(identity, f"{run.name}: {told}")
    return "; ".join(first.values()) if len(first) > 1 else ""
