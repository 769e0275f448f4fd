"""Whole models: tied weights, first weights, what is in a checkpoint, and the sizes that are refused."""

from typing import Any

import pytest
import torch
from torch import nn

from polyformer.models import Decoder, Encoder, EncoderDecoder, EncoderDecoderOptions
from polyformer.nn import RNN, FeedForward, Learned, NoFeedForward, NoPosition, Relative, Sinusoidal, SwiGLU

V, D = 13, 8
TIED = ["all", "target", "none"]
over_tied = pytest.mark.parametrize("tied", TIED)


def options(**changes: Any) -> EncoderDecoderOptions:
    given = {"d_model": D, "num_heads": 2, "encoder_layers": 2, "decoder_layers": 1, "max_length": 16, "dropout": 0.0}
    return EncoderDecoderOptions(**(given | changes))


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def tables(model: EncoderDecoder) -> list[int]:
    embeddings = (model.source_embedding, model.target_embedding, model.output)
    return [embedding.table.data_ptr() for embedding in embeddings]


def is_tied(model: EncoderDecoder, tied: str) -> bool:
    source, target, output = tables(model)
    if tied == "none":
        return len({source, target, output}) == 3
    return target == output and (source == target) == (tied == "all")


@over_tied
def test_tied_embeddings_are_one_parameter(tied: str) -> None:
    model = EncoderDecoder(V, V, options(tied=tied))
    assert is_tied(model, tied)
    assert model.output_weight is model.output.table
    rest = count(model.encoder) + count(model.decoder)
    assert count(model) == rest + {"all": 1, "target": 2, "none": 3}[tied] * V * D


@over_tied
def test_tied_weights_are_still_tied_after_loading(tied: str) -> None:
    saved, loaded = EncoderDecoder(V, V, options(tied=tied)), EncoderDecoder(V, V, options(tied=tied))
    assert not torch.equal(saved.output_weight, loaded.output_weight)
    loaded.load_state_dict(saved.state_dict())
    assert is_tied(loaded, tied)
    source, target = torch.randint(V, (2, 5)), torch.randint(V, (2, 4))
    saved.eval(), loaded.eval()
    assert torch.equal(loaded(source, target), saved(source, target))
    with torch.no_grad():
        loaded.target_embedding.table.zero_()
    assert bool((loaded.output_weight == 0).all()) == (tied != "none")
    assert bool((loaded.source_embedding.table == 0).all()) == (tied == "all")


@over_tied
def test_tied_weights_survive_a_move_and_a_step(tied: str) -> None:
    model = EncoderDecoder(V, V, options(tied=tied)).double()
    assert is_tied(model, tied)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.logits(model(torch.randint(V, (2, 5)), torch.randint(V, (2, 4)))).square().sum().backward()
    optimizer.step()
    assert is_tied(model, tied)


def test_tied_gradients_add_up() -> None:
    """The gradient of one shared table is the sum of the gradients of three equal ones."""
    free, shared = EncoderDecoder(V, V, options(tied="none")), EncoderDecoder(V, V, options(tied="all"))
    table = shared.output.table.detach()
    tables = dict.fromkeys(["source_embedding.table", "target_embedding.table", "output.table"], table)
    free.load_state_dict(shared.state_dict() | tables)
    source, target = torch.randint(V, (2, 5)), torch.randint(V, (2, 4))
    for model in (free, shared):
        model.logits(model(source, target)).square().sum().backward()
    parts = [free.source_embedding.table.grad, free.target_embedding.table.grad, free.output.table.grad]
    assert shared.output.table.grad is not None
    total = sum((part for part in parts if part is not None), torch.zeros(V, D))
    torch.testing.assert_close(shared.output.table.grad, total, rtol=1e-4, atol=1e-4)


def test_two_vocabularies_cannot_be_one_matrix() -> None:
    with pytest.raises(ValueError, match=r"`model.tied: all` needs one vocabulary .*, but they have 13 and 14"):
        EncoderDecoder(V, V + 1, options(tied="all"))
    for tied in ("target", "none"):
        model = EncoderDecoder(V, V + 1, options(tied=tied))
        assert model.logits(model(torch.tensor([[V - 1]]), torch.tensor([[V]]))).shape == (1, 1, V + 1)


def linears(model: nn.Module) -> dict[str, nn.Linear]:
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def deviation(linear: nn.Linear) -> float:
    return float(linear.weight.detach().std())


WIDE = {"d_model": 96, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 2}


def test_xavier_has_the_variance_of_glorot() -> None:
    for linear in linears(EncoderDecoder(V, V, options(**WIDE, initialization="xavier"))).values():
        expected = (2 / (linear.in_features + linear.out_features)) ** 0.5
        assert deviation(linear) == pytest.approx(expected, rel=0.04)
        assert float(linear.weight.detach().abs().max()) <= 3**0.5 * expected + 1e-6, "it is uniform"


def test_gpt2_makes_the_ends_of_branches_smaller() -> None:
    """Two layers of two branches, or of three in the decoder: 0.02 / sqrt(4) and 0.02 / sqrt(6)."""
    model = EncoderDecoder(V, V, options(**WIDE, initialization="gpt2"))
    for stack, smaller in ((model.encoder, 0.01), (model.decoder, 0.02 / 6**0.5)):
        seen = set()
        for name, linear in linears(stack).items():
            ends_branch = name.endswith((".output", ".outer"))
            seen.add(ends_branch)
            assert deviation(linear) == pytest.approx(smaller if ends_branch else 0.02, rel=0.04)
        assert seen == {True, False}


def test_torch_is_left_as_it_is() -> None:
    for linear in linears(EncoderDecoder(V, V, options(**WIDE, initialization="torch"))).values():
        assert deviation(linear) == pytest.approx((3 * linear.in_features) ** -0.5, rel=0.04)
        assert linear.bias is not None and bool((linear.bias != 0).any())


@pytest.mark.parametrize("initialization", ["xavier", "gpt2"])
def test_biases_start_at_zero(initialization: str) -> None:
    for linear in linears(EncoderDecoder(V, V, options(initialization=initialization))).values():
        assert linear.bias is not None and bool((linear.bias == 0).all())


@pytest.mark.parametrize("initialization", ["xavier", "gpt2", "torch"])
def test_embeddings_start_alike_whatever_the_recipe(initialization: str) -> None:
    model = EncoderDecoder(2000, 2000, options(d_model=32, initialization=initialization))
    assert float(model.output_weight.detach().std()) == pytest.approx(32**-0.5, rel=0.03)


@over_tied
@pytest.mark.parametrize("feed_forward", [FeedForward, SwiGLU])
@pytest.mark.parametrize("position", [NoPosition, Sinusoidal, Learned, Relative])
@pytest.mark.parametrize("cross_position", [NoPosition, Relative])
def test_gradients_reach_every_parameter(tied: str, feed_forward: type, position: type, cross_position: type) -> None:
    """A parameter without a gradient is dead weight, and stops distributed training."""
    parts = {"feed_forward": feed_forward, "position": position, "cross_position": cross_position}
    model = EncoderDecoder(V, V, options(tied=tied, max_length=4, **parts))
    source, target = torch.randint(V, (3, 4)), torch.randint(V, (3, 4))
    (model.logits(model(source, target)) * torch.randn(3, 4, V)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []


def test_nothing_of_a_decode_is_in_the_checkpoint() -> None:
    model = EncoderDecoder(V, V, options(position=Relative)).eval()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    with torch.no_grad():
        continuation = model.start(model.encode(torch.randint(V, (2, 5))))
        for _ in range(3):
            continuation.step(torch.randint(V, (2, 1)))
        continuation.reorder(torch.tensor([1, 1]))
    after = model.state_dict()
    assert list(before) == list(after) and all(torch.equal(before[name], after[name]) for name in before)
    assert attributes == {name: set(vars(module)) for name, module in model.named_modules()}
    assert set(before) >= {name for name, _ in model.named_parameters()}
    assert list(model.buffers()) == []


@pytest.mark.parametrize("position", [Sinusoidal, Learned, Relative])
@pytest.mark.parametrize(("encoder_layers", "decoder_layers"), [(1, 1), (3, 1), (1, 3)])
def test_numbers_of_layers(position: type, encoder_layers: int, decoder_layers: int) -> None:
    chosen = options(position=position, encoder_layers=encoder_layers, decoder_layers=decoder_layers)
    model = EncoderDecoder(V, V, chosen).eval()
    assert len(model.encoder.blocks) == encoder_layers and len(model.decoder.blocks) == decoder_layers
    each = position is Relative
    assert len(model.encoder.positions) == (encoder_layers if each else 1)
    assert len(model.decoder.positions) == (decoder_layers if each else 1)
    source, target = torch.randint(V, (2, 5)), torch.randint(V, (2, 4))
    with torch.no_grad():
        whole = model.logits(model(source, target))
        continuation = model.start(model.encode(source))
        stepped = [continuation.step(target[:, i : i + 1]) for i in range(4)]
    torch.testing.assert_close(torch.stack(stepped, dim=1), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", [0, -1])
def test_a_stack_without_layers_is_refused(layers: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1 layer, but has {layers}"):
        Encoder(options(), layers)
    with pytest.raises(ValueError, match=f"at least 1 layer, but has {layers}"):
        Decoder(options(decoder_layers=layers))


def test_only_pre_norm_stacks_end_with_a_norm() -> None:
    assert isinstance(Encoder(options(norm_place="pre"), 1).norm, nn.LayerNorm)
    assert isinstance(Encoder(options(norm_place="pre", norm="rms_norm"), 1).norm, nn.RMSNorm)
    assert isinstance(Encoder(options(norm_place="post"), 1).norm, nn.Identity)


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_stack_without_norms_has_none_and_grows_with_its_input(place: str) -> None:
    """Without positions, biases and ReLUs that cut, twice the embeddings are twice what a linear stack makes of them."""
    made = Encoder(options(norm="none", norm_place=place, mixer=RNN, feed_forward=NoFeedForward, position=NoPosition), 2).eval()
    assert not any(isinstance(part, nn.LayerNorm | nn.RMSNorm) for part in made.modules())
    x = 1e-4 * torch.randn(2, 5, made.shape.d_model)  # where tanh is a straight line
    assert not torch.allclose(made(x), x, atol=1e-6)
    torch.testing.assert_close(made(2 * x), 2 * made(x), rtol=1e-3, atol=1e-7)


def test_logits_are_a_product_with_the_output_weight() -> None:
    model = EncoderDecoder(V, V, options())
    hidden = torch.randn(2, 3, D)
    torch.testing.assert_close(model.logits(hidden), torch.einsum("bld,vd->blv", hidden, model.output_weight))


def test_padding_of_the_source_does_not_reach_the_target() -> None:
    model = EncoderDecoder(V, V, options(max_length=128)).eval()
    source, target = torch.randint(1, V, (1, 5)), torch.randint(1, V, (1, 4))
    with torch.no_grad():
        alone = model(source, target)
        for amount in (0, 7, 64):
            padded = torch.cat((source, torch.zeros(1, amount, dtype=torch.long)), dim=1)
            kept = torch.arange(5 + amount) < 5
            torch.testing.assert_close(model(padded, target, kept[None]), alone, rtol=1e-5, atol=1e-5)
