"""What a trained model needs beside its weights to read and write text."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from polyformer.text.tokenizer import Tokenizer

__all__ = ["Assets"]


@dataclass(frozen=True)
class Assets:
    """Tokenizers and label names by their role; part of every checkpoint.

    Args:
        tokenizers: such as `{"source": ..., "target": ...}`; one shared by two roles is stored once.
        labels: the names of classes in the order of their ids, such as `{"label": ["neg", "pos"]}`.

    >>> Assets({}, {"label": ["neg", "pos"]}).to_dict()["labels"]
    {'label': ['neg', 'pos']}
    """

    tokenizers: dict[str, Tokenizer] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All of it in strings, lists and dictionaries, which `torch.load(weights_only=True)` accepts."""
        files = {tokenizer.fingerprint: tokenizer.to_json() for tokenizer in self.tokenizers.values()}
        roles = {role: tokenizer.fingerprint for role, tokenizer in self.tokenizers.items()}
        return {
            "tokenizers": roles,
            "files": files,
            "labels": {role: list(names) for role, names in self.labels.items()},
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Assets":
        """What `to_dict` gave. Raises ValueError for anything else."""
        try:
            made = {name: Tokenizer.from_json(text) for name, text in content["files"].items()}
            roles = {role: made[name] for role, name in content["tokenizers"].items()}
            labels = {role: list(names) for role, names in content["labels"].items()}
        except (KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"these are no assets of a model: {type(error).__name__} {error}") from None
        return cls(roles, labels)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that differ when a tokenizer or a label does."""
        parts = {role: tokenizer.fingerprint for role, tokenizer in self.tokenizers.items()}
        return hashlib.sha256(json.dumps([parts, self.labels], sort_keys=True).encode()).hexdigest()[:16]
