"""Which position each layer of a stack has."""

from collections.abc import Sequence

from torch import nn

from polyformer.nn import Position, PositionFactory, Shape

__all__ = ["LayerPositions"]


class LayerPositions(nn.ModuleList):
    """The positions of a stack's layers.

    Layer i has item i of the list that is repeated. Layers that come to the same item have one instance if its kind is shared,
    and otherwise one each.

    Args:
        factories: What makes the positions.
        shape: What the stack has decided.
        num_layers: Number of layers.

    Raises:
        ValueError: If one of several acts on token embeddings, which all layers have in common.
    """

    def __init__(self, factories: Sequence[PositionFactory], shape: Shape, num_layers: int) -> None:
        super().__init__()
        shared: dict[int, int] = {}
        self.numbers: list[int] = []
        for layer in range(num_layers):
            item = layer % len(factories)
            if item not in shared:
                position = factories[item](shape)
                if len(factories) > 1 and "embed" in position.doors():
                    raise ValueError(
                        f"`model.positions` must act in layers, but {type(position).__name__} acts on token embeddings, which "
                        "all layers have in common; choose it by `model.position`, or take others, as Rotary"
                    )
                self.append(position)
                if position.shared:
                    shared[item] = len(self) - 1
            self.numbers.append(shared.get(item, len(self) - 1))

    def of(self, layer: int) -> Position:
        """The position of a layer."""
        position = self[self.numbers[layer]]
        assert isinstance(position, Position)
        return position
