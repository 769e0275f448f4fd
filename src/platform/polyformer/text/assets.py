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
        numbers: what else the training data has told, such as `{"counts": [12500.0, 12500.0]}`, how often each label is in
            it.

    >>> Assets({}, {"label": ["neg", "pos"]}).to_dict()["labels"]
    {'label': ['neg', 'pos']}
    """

    tokenizers: dict[str, Tokenizer] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    numbers: dict[str, list[float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All of it in strings, lists and dictionaries, which `torch.load(weights_only=True)` accepts."""
        files = {tokenizer.fingerprint: tokenizer.to_json() for tokenizer in self.tokenizers.values()}
        roles = {role: tokenizer.fingerprint for role, tokenizer in self.tokenizers.items()}
        return {
            "tokenizers": roles,
            "files": files,
            "labels": {role: list(names) for role, names in self.labels.items()},
            "numbers": {role: list(values) for role, values in self.numbers.items()},
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Assets":
        """What `to_dict` gave. Raises ValueError for anything else."""
        try:
            made = {name: Tokenizer.from_json(text) for name, text in content["files"].items()}
            roles = {role: made[name] for role, name in content["tokenizers"].items()}
            labels = {role: list(names) for role, names in content["labels"].items()}
            numbers = {role: list(values) for role, values in content.get("numbers", {}).items()}
        except (KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"these are no assets of a model: {type(error).__name__} {error}") from None
        return cls(roles, labels, numbers)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that differ when a tokenizer, a label or a number does."""
        parts = {role: tokenizer.fingerprint for role, tokenizer in self.tokenizers.items()}
        told = [parts, self.labels, *([self.numbers] if self.numbers else [])]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
