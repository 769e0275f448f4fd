"""What a stack decides and its parts must agree on."""

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["Limited", "Shape"]


@dataclass(frozen=True)
class Shape:
    """The facts shared by the parts of one stack; every factory (position, mixer, feed-forward) receives it.

    Args:
        d_model: Width of the token vectors.
        num_heads: Number of query heads; it must divide ``d_model``.
        max_length: The longest sequence the stack is built for, in tokens.
        causal: Whether a token may see only itself and earlier ones.
        dropout: Probability used by every part that is not given one of its own.

    Raises:
        ValueError: For a value that no Transformer can have.

    >>> Shape(d_model=8, num_heads=2).d_head
    4
    """

    d_model: int
    num_heads: int
    max_length: int = 512
    causal: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("d_model", "num_heads", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}")
        if self.d_model % self.num_heads:
            raise ValueError(f"`num_heads` must divide `d_model` ({self.d_model}), but is {self.num_heads}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"`dropout` must be at least 0 and below 1, but is {self.dropout}")

    @property
    def d_head(self) -> int:
        """Width of one head (K)."""
        return self.d_model // self.num_heads


class Limited:
    """A part of a stack that may have room for so many tokens only."""

    without_limit: ClassVar[str]
    """A part of its kind that has no limit, for the message."""

    @property
    def limit(self) -> int | None:
        """The most tokens that it has room for; None when there is no limit."""
        return None

    def check_length(self, length: int) -> None:
        """Refuses a sequence of ``length`` tokens if they are too many.

        Raises:
            ValueError: Naming the key to change.
        """
        if self.limit is not None and length > self.limit:
            raise ValueError(
                f"`{type(self).__name__}` has room for {self.limit} tokens (`model.max_length`), but {length} are needed; "
                f"train with a larger `model.max_length`, or with one that has no limit, as {self.without_limit}"
            )
