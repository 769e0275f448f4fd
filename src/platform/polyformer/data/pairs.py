"""Pairs of texts, such as a sentence and its translation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from polyformer.data.adopting import adopted
from polyformer.data.batches import BatchSettings, TokenBatches
from polyformer.data.cache import cached_tokenizer
from polyformer.data.limits import ColumnLimits, Rows
from polyformer.data.reading import Damaged
from polyformer.data.sourced import SourcedData
from polyformer.data.sources import Train
from polyformer.text import BOS, DROPOUT_KINDS, EOS, PAD, Assets, SubwordDropout, Tokenizer, TokenizerSettings

__all__ = ["Limits", "PairBatch", "PairData", "PairTokenizerSettings", "encode_texts", "pad_rows", "pair_batches"]


@dataclass(frozen=True)
class PairTokenizerSettings(TokenizerSettings):
    """How the two sides are cut into tokens.

    Args:
        joint: one vocabulary for both sides; otherwise each side has its own, of `vocab_size` tokens.
        target_path: an existing tokenizer of the target side; `path` is then that of the source side.
        dropout: the probability with which BPE leaves out a merge, in training only (Provilkov et al., 2020); 0.1
            is common for small data. Batches hold more tokens than planned then, since words are cut finer.
    """

    joint: bool = True
    target_path: str | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"tokenizer `dropout` must be at least 0 and below 1, but is {self.dropout}")
        if self.dropout and self.path is None and self.kind not in DROPOUT_KINDS:
            raise ValueError(f"tokenizer `dropout` needs a `kind` of {' or '.join(DROPOUT_KINDS)}, but it is {self.kind}")
        if self.target_path is not None and self.path is None:
            raise ValueError("tokenizer `target_path` needs `path` too, the tokenizer of the source side")
        if self.path is not None and self.target_path is None and not self.joint:
            raise ValueError(f"tokenizer `path` ({self.path}) is one tokenizer for both sides; give `target_path` as well")

    def plain(self) -> TokenizerSettings:
        """The settings of one tokenizer."""
        return TokenizerSettings(self.kind, self.vocab_size, self.min_frequency, self.lowercase, self.path)


@dataclass(frozen=True)
class Limits:
    """Which training examples are used. In validation and test nothing is dropped; what is too long is cut.

    Args:
        max_source: the most source tokens, the end mark included; no limit if None.
        max_target: the most target tokens, the end mark included; no limit if None.
        too_long: training examples over a limit are dropped, or cut.
        empty: training examples with an empty side are dropped, or kept.

    >>> Limits(max_source=100).max_target
    256
    """

    max_source: int | None = 256
    max_target: int | None = 256
    too_long: Literal["drop", "truncate"] = "drop"
    empty: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        for name in ("max_source", "max_target"):
            value = getattr(self, name)
            if value is not None and value < 2:
                raise ValueError(f"`data.limits.{name}` must be at least 2 (a token and the end mark), but is {value}")


@dataclass(frozen=True)
class PairBatch:
    """Pairs as tensors, right-padded with `PAD`.

    Args:
        source: (B, S) tokens and `EOS`.
        source_keep: (B, S), True where a token is real; None where nothing is padded.
        target: (B, T) `BOS`, tokens and `EOS`.
        index: (B,) numbers of the examples.
        source_text: the untouched texts, in evaluation; empty in training.
        target_text: likewise, the references; empty strings where there are none.
    """

    source: Tensor
    source_keep: Tensor | None
    target: Tensor
    index: Tensor
    source_text: Sequence[str] = ()
    target_text: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.index)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "PairBatch":
        """The batch on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "PairBatch":
        """The batch in page-locked memory, from where it is copied to a GPU faster."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Any) -> "PairBatch":
        keep = None if self.source_keep is None else change(self.source_keep)
        source, target, index = change(self.source), change(self.target), change(self.index)
        return replace(self, source=source, source_keep=keep, target=target, index=index)


class PairData(SourcedData):
    """Pairs of a source and a target text, in batches of about `batches.tokens` target tokens.

    Args:
        train: a table, a list of two text files (source, target), each also a pattern such as `shards/*.parquet` or a folder,
            or `hub:NAME[@CONFIG]:SPLIT`; see `read_examples`. Or several sources that are mixed, as
            `[{files: [news.en, news.de], weight: 3}, {files: web.tsv}]`: an epoch has as many batches as all of them
            together, each batch of one source.
        validation: likewise without weights, or none.
        test: as validation.
        source: the column of the source text, by name or number; not used for two text files.
        target: the column of the target text.
        tokenizer: how text is cut into tokens.
        limits: which examples are used.
        batches: how examples are put into batches.
        damaged: whether a run stops at a line or file that cannot be read, or leaves it out and counts it.
    """

    counted = ("target", "source")
    texts_served = ("source_text", "target_text")

    def __init__(
        self,
        train: Train = None,
        validation: str | list[str] | None = None,
        test: str | list[str] | None = None,
        source: str | int = "source",
        target: str | int = "target",
        tokenizer: PairTokenizerSettings = PairTokenizerSettings(),
        limits: Limits = Limits(),
        batches: BatchSettings = BatchSettings(),  # noqa: B008 - frozen
        damaged: Damaged = "stop",
    ) -> None:
        super().__init__(train, validation, test, batches, damaged)
        self.source, self.target = source, target
        self.tokenizer, self.pair_limits = tokenizer, limits
        self._dropouts: dict[str, SubwordDropout] = {}

    @property
    def columns(self) -> Mapping[str, str | int]:
        """The two sides."""
        return {"source": self.source, "target": self.target}

    def make_assets(self) -> Assets:
        """One tokenizer for both roles, or one for each."""
        settings = self.tokenizer.plain()
        if self.tokenizer.target_path is not None:
            paths = {"source": self.tokenizer.path, "target": self.tokenizer.target_path}
            return Assets({side: Tokenizer.load(str(path)) for side, path in paths.items()})
        if self.tokenizer.joint:
            shared = self._train_tokenizer(settings, ["source", "target"])
            return Assets({"source": shared, "target": shared})
        return Assets({side: self._train_tokenizer(settings, [side]) for side in ("source", "target")})

    def adopt(self, tokenizer: Tokenizer, target: Tokenizer | None = None) -> None:
        """The first becomes that of the source side; where the second is not given, of the target side too if it is joint."""
        settings, other = self.tokenizer.plain(), self.tokenizer.target_path
        if target is None and other is None and not self.tokenizer.joint:  # then the user's keys are about the target
            made = self._train_tokenizer(settings, ["target"])
            source, other = (adopted(one, settings, settings, self.key) for one in (tokenizer, made))
        else:
            source = self.adopted(tokenizer, settings)
            other = other if target is None else self.adopted(target, replace(settings, path=other))
        self.tokenizer = replace(self.tokenizer, path=source, target_path=other)

    def _train_tokenizer(self, settings: TokenizerSettings, sides: list[str]) -> Tokenizer:
        def texts() -> Iterator[str]:
            return (example[side] for example in self.examples("train") for side in sides)

        key = {**self.content_key("train"), "columns": dict(self.columns), "sides": sides}
        return cached_tokenizer(texts, settings, key)

    def encode(self, rows: dict[str, list[str]]) -> Rows:
        """Ids without special tokens, and the untouched texts. Targets are empty without "target", as in prediction."""
        targets = rows.get("target", [""] * len(rows["source"]))
        tokenizers = self.assets.tokenizers
        return {
            "source": encode_texts(tokenizers["source"], rows["source"]),
            "target": encode_texts(tokenizers["target"], targets),
            "source_text": rows["source"],
            "target_text": targets,
        }

    def limits(self, split: str) -> ColumnLimits:
        """The limits, less one for the end mark."""
        longest = {"source": self.pair_limits.max_source, "target": self.pair_limits.max_target}
        ids = {side: None if most is None else most - 1 for side, most in longest.items()}
        if split == "train":
            return ColumnLimits(ids, self.pair_limits.too_long, self.pair_limits.empty)
        return ColumnLimits(ids, "truncate", "keep")

    def settings(self) -> dict[str, Any]:
        """What the training batches depend on beside files and tokenizers."""
        limits = {f"limits.{name}": value for name, value in vars(self.pair_limits).items()}
        return {**limits, "tokenizer.dropout": self.tokenizer.dropout}

    def training_columns(self) -> list[str]:
        """With subword dropout the texts too, since they are cut anew each time."""
        texts = list(self.texts_served) if self.tokenizer.dropout else []
        return ["source", "target", *texts]

    def training_rows(self, rows: Rows, epoch: int) -> Rows:
        """With subword dropout, both sides cut anew, as follows from seed, epoch and the example's number alone."""
        if not self.tokenizer.dropout:
            return rows
        longest = self.limits("train").longest
        changed: Rows = {"index": rows["index"]}
        for place, side in enumerate(("source", "target")):
            encoder = self._dropout_encoder(side)
            base = (self.seed * 2**20 + epoch) * 2 + place
            cut = encoder.encode_batch(rows[f"{side}_text"], [base * 2**40 + index for index in rows["index"]])
            most = longest[side]
            pairs = zip(cut, rows[side], strict=True)
            changed[side] = [new if most is None or len(new) <= most else old for new, old in pairs]
        return changed

    def _dropout_encoder(self, side: str) -> SubwordDropout:
        tokenizer = self.assets.tokenizers[side]
        if tokenizer.fingerprint not in self._dropouts:
            self._dropouts[tokenizer.fingerprint] = tokenizer.with_dropout(self.tokenizer.dropout)
        return self._dropouts[tokenizer.fingerprint]

    def collate(self, rows: Rows) -> PairBatch:
        """Pairs as tensors."""
        return collate_pairs(rows)


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The ids of texts; none for a text of spaces alone, which counts as empty."""
    return tokenizer.encode_batch([text if text.strip() else "" for text in texts])


def collate_pairs(rows: Rows) -> PairBatch:
    """Encoded pairs, "source", "target" and "index", as tensors."""
    source = pad_rows([[*ids, EOS] for ids in rows["source"]])
    keep = source != PAD
    return PairBatch(
        source=source,
        source_keep=None if bool(keep.all()) else keep,
        target=pad_rows([[BOS, *ids, EOS] for ids in rows["target"]]),
        index=torch.tensor(rows["index"], dtype=torch.int64),
        source_text=rows.get("source_text", ()),
        target_text=rows.get("target_text", ()),
    )


def pair_batches(sources: list[list[int]], targets: list[list[int]], tokens: int = 4096) -> Iterator[PairBatch]:
    """Batches of pairs that are already ids, longest first, those without a source left out; "index" is their places.

    >>> [batch.index.tolist() for batch in pair_batches([[5], [], [6, 7]], [[], [], []])]
    [[2, 0]]
    """
    chosen = [place for place, source in enumerate(sources) if source]
    pairs = [(len(sources[place]) + 1, len(targets[place]) + 1) for place in chosen]
    lengths = np.array([(max(pair), *pair) for pair in pairs]).reshape(-1, 3)
    for batch in TokenBatches(lengths, tokens=tokens, shuffle=False).plan(0):
        places = [chosen[at] for at in batch]
        yield collate_pairs(
            {
                "source": [sources[place] for place in places],
                "target": [targets[place] for place in places],
                "index": places,
            }
        )


def pad_rows(rows: Sequence[Sequence[int]], value: int = PAD) -> Tensor:
    """Rows of ids as one tensor (B, longest) of int64, filled up on the right.

    >>> pad_rows([[5, 3], [3]])
    tensor([[5, 3],
            [3, 0]])
    """
    longest = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], dtype=torch.int64).reshape(
        len(rows), longest
    )
