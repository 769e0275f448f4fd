"""A stack that computes its last block at some places only gives there what it gives when it computes all."""

import torch
from torch import Tensor

from polyformer.models import Encoder, EncoderOnly, EncoderOnlyOptions, Placement
from polyformer.nn import FirstToken, FullAttention, Max, Mean, Shape, recorded_weights
from polyformer.nn.mixer import take

from .cases import D_MODEL, Case, close, over_encoders, shake
from .test_padding import on_the_left, on_the_right, ragged

PLACES = torch.tensor([[4, 0, 0], [1, 2, 0]])
"""Of texts of 5 and 3 tokens; a place may be asked for twice."""


@over_encoders
@torch.no_grad()
def test_of_every_mixer_and_position(case: Case) -> None:
    stack, texts = case.build().stack, ragged()
    assert isinstance(stack, Encoder)
    x, placement = on_the_right(texts, 2)
    close(stack(x, placement, places=PLACES), take(stack(x, placement), PLACES), "padded on the right")
    x, placement = on_the_left(texts, 2)
    places = PLACES + torch.tensor([[2], [4]])
    close(stack(x, placement, places=places), take(stack(x, placement), places), "padded on the left")
    x = torch.randn(2, 6, D_MODEL)
    close(stack(x, places=PLACES), take(stack(x), PLACES), "without padding")
    packed = Placement(None, torch.tensor([[0, 1, 2, 0, 1, 2]] * 2), torch.tensor([[0, 0, 0, 1, 1, 1]] * 2))
    if stack.shape.causal:
        close(stack(x, packed, places=PLACES), take(stack(x, packed), PLACES), "packed")


def test_gradients_are_those_of_the_whole() -> None:
    network, tokens = reader(), torch.randint(4, 9, (3, 7))
    keep = torch.arange(7) < torch.tensor([[7], [4], [1]])
    pooling = FirstToken(Shape(8, 2))
    whole = gradients(network, pooling(network(tokens, keep=keep), keep))
    for name, gradient in gradients(network, network.pooled(pooling, tokens, keep=keep)).items():
        close(gradient, whole[name], name)


@torch.no_grad()
def test_what_a_pooling_gives_is_the_same() -> None:
    network, tokens = reader().eval(), torch.randint(4, 9, (4, 7))
    right = torch.arange(7) < torch.tensor([[7], [4], [1], [0]])
    for keep in (None, right, right.flip(1)):
        for pooling in (FirstToken(Shape(8, 2)), Mean(Shape(8, 2)), Max(Shape(8, 2))):
            close(network.pooled(pooling, tokens, keep=keep), pooling(network(tokens, keep=keep), keep))


@torch.no_grad()
def test_the_last_block_computes_nothing_else() -> None:
    network, widths = reader().eval(), list[tuple[int, ...]]()
    for block in network.stack.blocks:
        block.feed_forward.register_forward_hook(lambda part, given, made: widths.append(tuple(made.shape)))
    network.pooled(FirstToken(Shape(8, 2)), torch.randint(4, 9, (3, 7)))
    assert widths == [(3, 7, 8), (3, 1, 8)]


@torch.no_grad()
def test_recorded_weights_are_those_of_all_tokens() -> None:
    network = reader().eval()
    with recorded_weights() as weights:
        network.pooled(FirstToken(Shape(8, 2)), torch.randint(4, 9, (3, 7)))
    assert [tuple(each.shape) for each in weights] == [(3, 2, 7, 7)] * 2


@torch.no_grad()
def test_a_subclass_with_a_way_of_its_own_keeps_it() -> None:
    class Doubled(FullAttention):
        def forward(self, x: Tensor, *rest: object) -> Tensor:
            return 2.0 * super().forward(x, *rest)  # type: ignore[arg-type]

    network = EncoderOnly(9, EncoderOnlyOptions(d_model=8, num_heads=2, num_layers=1, mixer=Doubled)).eval()
    tokens, pooling = torch.randint(4, 9, (3, 7)), FirstToken(Shape(8, 2))
    close(network.pooled(pooling, tokens), pooling(network(tokens)))


def reader() -> EncoderOnly:
    """Two layers with weights far from any symmetry."""
    torch.manual_seed(0)
    network = EncoderOnly(9, EncoderOnlyOptions(d_model=8, num_heads=2, num_layers=2, dropout=0.0))
    shake(network)
    return network


def gradients(network: EncoderOnly, made: Tensor) -> dict[str, Tensor]:
    """Those of all weights, of a sum that weighs no two numbers alike."""
    network.zero_grad()
    (made * torch.arange(made.numel()).view(made.shape)).sum().backward()
    return {name: weight.grad.clone() for name, weight in network.named_parameters() if weight.grad is not None}
