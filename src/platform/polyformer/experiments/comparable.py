"""Which metrics of which runs may be ranked, and why the others may not."""

from collections.abc import Sequence
from dataclasses import dataclass

from polyformer.experiments.runs import Run
from polyformer.experiments.settings import in_words

__all__ = ["WITHOUT_TOKENS", "Refusal", "refusals"]

PER_TOKEN = ("loss", "perplexity", "accuracy")
WITHOUT_TOKENS = ("bits_per_byte", "word_perplexity")
SPLITS = {"val": "validation", "test": "test"}


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
    per_token = tuple(name for name in metrics if _short(name) in PER_TOKEN and not name.startswith("train/"))
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
    remedy = f"measure them on the same: platform {verb} --ckpt_path RUN --data.{long} FILES"
    return Refusal(chosen, f"the {long} data differ ({said})", remedy)


def _other_signatures(runs: Sequence[Run], metrics: Sequence[str]) -> list[Refusal]:
    found = []
    for short in dict.fromkeys(name for run in runs for name in run.results.get("signatures", {})):
        chosen = tuple(name for name in metrics if _short(name) == short)
        said = _parted(runs, [(run.results.get("signatures", {}).get(short, "none"),) * 2 for run in runs]) if chosen else ""
        if said:
            remedy = "measure them alike by `platform test` with the same --task and --data keys"
            found.append(Refusal(chosen, f"the signatures differ ({said})", remedy))
    return found


def _contents(runs: Sequence[Run], split: str) -> list[tuple[str, str]]:
    """For each run what tells its data from others', and how a reader is told: digests where all have them, else names."""
    known = [run.results.get("fingerprints", {}).get(split) for run in runs]
    found = []
    for run, digest in zip(runs, known, strict=True):
        keys = [key for key in sorted(run.settings) if key.endswith((f".{split}", ".evaluation_count", ".language"))]
        named = ", ".join(in_words(run.settings[key]) for key in keys if run.settings[key] is not None)
        named = named or str(run.settings.get("data", "unnamed"))
        count = str(run.results.get("data", {}).get(split, "")).partition(";")[0]
        told = ", ".join(part for part in (named, count, digest) if part)
        found.append((f"{digest} {count}" if all(known) else f"{named} {count}", told))
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
