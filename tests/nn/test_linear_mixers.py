"""Linear attention, Performer, Linformer and Reformer: each equals its definition spelled out, whole, packed and in steps."""

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyformer.cli import main
from polyformer.nn import (
    Context,
    FullAttention,
    LinearAttention,
    Linformer,
    Mask,
    Mixer,
    NoPosition,
    Performer,
    Reformer,
    Rotary,
    Shape,
)
from polyformer.nn.attention import merge_heads, split_heads
from polyformer.nn.mixers import HashedKeyValues, Sums, linear_attention
from polyformer.nn.mixers.linear_attention import positive
from polyformer.nn.mixers.performer import orthogonal_vectors
from polyformer.training import read_checkpoint
from polyformer.training.redrawing import Redrawing

from ..equivalence.cases import close, shake

SHAPE = Shape(d_model=8, num_heads=2, max_length=16)
LENGTH = 11
RIGHT = torch.arange(LENGTH) < torch.tensor([[LENGTH], [6]])
LEFT = RIGHT.flip(1)
DOCUMENT = torch.tensor([[0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2], [4, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6]])
BOTH = {"plain": Mask(), "right": Mask(keep=RIGHT), "left": Mask(keep=LEFT)}
CAUSAL = {f"causal_{name}": replace(mask, causal=True) for name, mask in BOTH.items()} | {
    "causal_packed": Mask(causal=True, document=DOCUMENT)
}
KINDS: list[Callable[[Shape], Mixer]] = [
    LinearAttention,
    lambda shape: Performer(shape, features=6),
    lambda shape: Linformer(shape, rank=3),
    lambda shape: Reformer(shape, bucket=2, hashes=2),
]
over_kinds = pytest.mark.parametrize("make", KINDS, ids=["LinearAttention", "Performer", "Linformer", "Reformer"])
over_sums = pytest.mark.parametrize("make", KINDS[:2], ids=["LinearAttention", "Performer"])


def over(masks: dict[str, Mask]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mask", list(masks.values()), ids=list(masks))


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_attention, "CHUNK", 3)


def made(make: Callable[[Shape], Mixer], shape: Shape = SHAPE) -> Any:
    mixer = make(shape)
    shake(mixer)
    return mixer


def context(mask: Mask, length: int = LENGTH, position: type = NoPosition) -> Context:
    """Where ``length`` tokens are; indices count from the first real one, and in packed rows within the document."""
    at = torch.arange(length)
    if mask.document is not None:
        at = (mask.document.unsqueeze(1) == mask.document.unsqueeze(2)).int().tril().sum(-1) - 1
    elif mask.keep is not None:
        at = (mask.keep.cumsum(1) - 1).clamp(min=0)
    return Context(mask, position(SHAPE), at, at)


def sight(mask: Mask, length: int = LENGTH) -> Tensor:
    """(B or 1, 1, L, L), what each token may look at."""
    columns = torch.arange(length)
    return mask.dense(columns, columns).expand(-1, 1, length, length)


def real(mask: Mask, out: Tensor) -> Tensor:
    return out if mask.keep is None else out[mask.keep]


def same_in_values_and_gradients(one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor], mask: Mask) -> None:
    """Over a batch of two; the vectors of padding may be anything."""
    x = torch.randn(2, LENGTH, SHAPE.d_model, requires_grad=True)
    results = [real(mask, out) for out in (one(x), other(x))]
    close(results[0], results[1])
    pull = torch.randn_like(results[0])
    gradients = [torch.autograd.grad(out, x, pull)[0] for out in results]
    close(gradients[0], gradients[1], "gradients")


# ---- linear attention and Performer


@over_sums
@pytest.mark.parametrize("position", [NoPosition, Rotary])
@over({**BOTH, **CAUSAL})
def test_sums_equal_weights_of_pairs(make: Callable[[Shape], Mixer], position: type, mask: Mask) -> None:
    mixer, where = made(make), context(mask, position=position)

    def by_pairs(x: Tensor) -> Tensor:
        q, k, v = (split_heads(part, 2) for part in mixer.project(x).chunk(3, -1))
        q, k = mixer.features(where.position.rotate(q, where.at), where.position.rotate(k, where.at))
        weights = (q @ k.transpose(-1, -2)) * sight(mask)
        return cast(Tensor, mixer.output(merge_heads(weights / weights.sum(-1, keepdim=True).clamp(min=1e-30) @ v)))

    same_in_values_and_gradients(lambda x: mixer(x, where), by_pairs, mask)


def test_features_of_linear_attention_are_elu_plus_one() -> None:
    x = torch.randn(100)
    close(positive(x), F.elu(x) + 1)
    assert positive(torch.tensor(-30.0)).item() == pytest.approx(math.exp(-30))


@over_sums
@pytest.mark.parametrize("sizes", [[1] * LENGTH, [4, 1, 6], [LENGTH]], ids=str)
@over({name: mask for name, mask in CAUSAL.items() if mask.document is None})
@torch.no_grad()
def test_sums_go_on_where_they_were(make: Callable[[Shape], Mixer], sizes: list[int], mask: Mask) -> None:
    stepped_equals_whole(made(make), sizes, mask)


def stepped_equals_whole(mixer: Mixer, sizes: list[int], mask: Mask) -> None:
    where, x, state = context(mask, position=Rotary), torch.randn(2, LENGTH, SHAPE.d_model), mixer.start()
    whole, parts, end = mixer(x, where), [], 0
    for size in sizes:
        begin, end = end, end + size
        seen = replace(mask, keep=None if mask.keep is None else mask.keep[:, :end])
        here = Context(seen, where.position, where.at[..., begin:end], where.at[..., :end])
        parts.append(mixer(x[:, begin:end], here, state))
    close(real(mask, torch.cat(parts, 1)), real(mask, whole))


@over_sums
@torch.no_grad()
def test_a_state_of_sums_keeps_its_size_and_takes_nothing_back(make: Callable[[Shape], Mixer]) -> None:
    mixer, where = made(make).to(torch.bfloat16), context(Mask(causal=True), 1)
    state = mixer.start()
    assert isinstance(state, Sums)
    sizes = set()
    for _ in range(5):
        mixer(torch.randn(2, 1, 8, dtype=torch.bfloat16), where, state)
        assert state.totals is not None and state.totals.dtype is torch.float32
        sizes.add(state.totals.shape)
    assert len(sizes) == 1
    before = state.totals
    state.reorder(torch.tensor([1, 1, 0]))
    assert torch.equal(state.totals, before[[1, 1, 0]])
    with pytest.raises(NotImplementedError, match="Sums cannot take tokens back"):
        state.rewind(1)


@over_sums
def test_sums_are_wide_where_the_rest_is_cast(make: Callable[[Shape], Mixer]) -> None:
    mixer, x = made(make), torch.randn(1, 4, 8)
    state = mixer.start()
    with torch.autocast("cpu", torch.bfloat16):
        out = mixer(x, context(Mask(causal=True), 4), state)
    assert out.dtype is torch.bfloat16 and state.totals.dtype is torch.float32
    torch.testing.assert_close(out.float(), mixer(x, context(Mask(causal=True), 4)), rtol=0.05, atol=0.05)


def test_nothing_of_length_times_width_squared_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_attention, "CHUNK", 32)
    length, width, sizes = 256, 32, []
    mixer = LinearAttention(Shape(width, 1))

    def note(kept: Tensor) -> Tensor:
        sizes.append(kept.numel())
        return kept

    with torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept):
        mixer(torch.randn(1, length, width), context(Mask(causal=True), length)).sum().backward()
    assert max(sizes) < length * width * width / 8


@pytest.mark.parametrize("make", [LinearAttention, Linformer])
def test_packed_documents_are_refused_where_they_cannot_be_kept_apart(make: Any) -> None:
    with pytest.raises(ValueError, match=f"`{make.__name__}` .*packed documents.*give each text a row of its own"):
        make(SHAPE)(torch.randn(2, LENGTH, 8), context(Mask(document=DOCUMENT)))


# ---- Performer


@pytest.mark.parametrize("position", [NoPosition, Rotary])
@over({"both": BOTH["right"], "causal": CAUSAL["causal_left"]})
@torch.no_grad()
def test_with_many_features_a_performer_is_softmax_attention(position: type, mask: Mask) -> None:
    full, where, x = made(FullAttention), context(mask, position=position), 0.5 * torch.randn(2, LENGTH, 8)
    exact = real(mask, full(x, where))
    errors = []
    for features in (16, 1024, 65536):
        mixer = Performer(SHAPE, features)
        mixer.load_state_dict(full.state_dict(), strict=False)
        errors.append(float((real(mask, mixer(x, where)) - exact).norm() / exact.norm()))
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.03


@pytest.mark.parametrize("width", [4, 64, 256])
def test_products_of_features_are_those_of_the_paper_up_to_a_factor_of_the_query(width: int) -> None:
    mixer = Performer(Shape(width, 1), 32)
    q, k = torch.randn(1, 1, 5, width), torch.randn(1, 1, 7, width)
    of_q, of_k = mixer.features(q, k)
    assert bool((of_q <= 1).all()) and bool((of_k > 0).all())
    vectors = mixer.drawn.double()
    plain = [x.double() * width**-0.25 for x in (q, k)]
    plain = [(x @ vectors.t() - x.square().sum(-1, keepdim=True) / 2).exp() for x in plain]
    ratio = (of_q @ of_k.transpose(-1, -2)) / (plain[0] @ plain[1].transpose(-1, -2))
    torch.testing.assert_close(ratio, ratio[..., :1].expand_as(ratio), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
@pytest.mark.parametrize("causal", [False, True])
def test_a_performer_of_any_size_of_input_stays_finite(scale: float, causal: bool) -> None:
    mixer, x = Performer(Shape(256, 1), 16), (scale * torch.randn(1, LENGTH, 256)).requires_grad_()
    out = mixer(x, context(Mask(causal)))
    out.square().mean().backward()
    assert x.grad is not None and bool(out.isfinite().all()) and bool(x.grad.isfinite().all())


@torch.no_grad()
def test_vectors_are_orthogonal_in_groups_and_as_long_as_normal_ones() -> None:
    vectors = orthogonal_vectors(10, 4)
    products = vectors @ vectors.t()
    for begin in (0, 4, 8):
        group = products[begin : begin + 4, begin : begin + 4]
        close(group, torch.diag(group.diagonal()))
    many = orthogonal_vectors(20000, 4)
    torch.testing.assert_close(many.t() @ many / 20000, torch.eye(4), rtol=0.0, atol=0.05)
    assert float(many.norm(dim=-1).std()) == pytest.approx(math.sqrt(4 - (3 * math.sqrt(math.pi / 8)) ** 2), abs=0.02)


def test_features_are_part_of_a_checkpoint_and_forward_leaves_them() -> None:
    mixer = Performer(SHAPE, 6).train()
    before = mixer.drawn.clone()
    for _ in range(3):
        mixer(torch.randn(2, LENGTH, 8), context(Mask()))
    assert torch.equal(mixer.state_dict()["drawn"], before) and not mixer.drawn.requires_grad


def train(network: nn.Module, steps: range, seed: int = 1, batches: int = 1) -> list[list[Tensor]]:
    """The features that each Performer has in each step."""
    callback, features = Redrawing(seed), []
    performers = [module for module in network.modules() if isinstance(module, Performer)]
    for number, step in enumerate(steps):
        trainer = cast(Any, SimpleNamespace(global_step=step))
        if not number:
            callback.on_train_start(trainer, cast(Any, network))
        for batch in range(batches):
            callback.on_train_batch_start(trainer, cast(Any, network), None, batch)
        features.append([performer.drawn.clone() for performer in performers])
    return features


def network() -> nn.Sequential:
    return nn.Sequential(Performer(SHAPE, 6, redraw_every=3), nn.Linear(2, 2), Performer(SHAPE, 6, redraw_every=2))


def test_features_are_drawn_anew_every_so_many_steps() -> None:
    seen = train(network(), range(8))
    for place, every in ((0, 3), (1, 2)):
        changed = [step for step in range(1, 8) if not torch.equal(seen[step][place], seen[step - 1][place])]
        assert changed == list(range(every, 8, every))
    assert not torch.equal(seen[6][0], seen[6][1])


def test_what_is_drawn_follows_from_seed_and_step_alone() -> None:
    one = network()
    start = copy.deepcopy(one.state_dict())
    seen = train(one, range(8))
    torch.rand(7)  # another rank has drawn other numbers, for its dropout
    ranked = network()
    ranked.load_state_dict(start)
    for mine, other in zip(seen, train(ranked, range(8), batches=2), strict=True):
        assert all(torch.equal(*pair) for pair in zip(mine, other, strict=True))
    other_seed = train(network(), range(8), seed=2)
    assert not torch.equal(seen[7][0], other_seed[7][0])
    for stop in range(1, 8):
        resumed = network()
        for performer, drawn in zip((resumed[0], resumed[2]), seen[stop - 1], strict=True):
            cast(Any, performer).drawn.copy_(drawn)
        for mine, other in zip(seen[stop:], train(resumed, range(stop, 8)), strict=True):
            assert all(torch.equal(*pair) for pair in zip(mine, other, strict=True))


def test_frozen_performers_and_those_told_to_keep_their_features() -> None:
    still = nn.Sequential(Performer(SHAPE, 6, redraw_every=1).eval(), Performer(SHAPE, 6, redraw_every=None))
    seen = train(still, range(4))
    assert all(torch.equal(seen[0][place], seen[3][place]) for place in (0, 1))


def test_a_training_draws_features_and_a_resumed_one_has_those_of_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"{'ab' * number} {'ba' * (number % 7)}\n" for number in range(1, 40)))
    mixer = "{class_path: Performer, init_args: {features: 6, redraw_every: 2}}"
    (tmp_path / "config.yaml").write_text(
        f"task: LanguageModeling\nmodel: {{d_model: 8, num_heads: 2, num_layers: 1, max_length: 16, mixer: {mixer}}}\n"
        f"data: {{train: {tmp_path}/text.txt, window: 16, tokenizer: {{kind: character}}, batches: {{tokens: 64}}}}\n"
        "training: {schedule: Constant}\ntrainer: {log_every_n_steps: 1, accelerator: cpu}\nseed: 5\n"
    )

    def drawn(steps: int, *words: str) -> Tensor:
        arguments = ["--run", str(tmp_path / "run"), "--trainer.max_steps", str(steps), "--debug", *words]
        assert main(["fit", "--config", str(tmp_path / "config.yaml"), *arguments]) == 0
        weights = read_checkpoint(tmp_path / "run" / "checkpoints" / "last.ckpt")["state_dict"]
        (found,) = (value for name, value in weights.items() if name.endswith(".drawn"))
        return cast(Tensor, found)

    first, resumed = drawn(3), drawn(4, "--resume")
    performer = Performer(SHAPE, 6, redraw_every=2)
    train(performer, range(2, 3), seed=5)
    assert torch.equal(first, performer.drawn) and torch.equal(resumed, first)


# ---- Linformer


@pytest.mark.parametrize("position", [NoPosition, Rotary])
@over(BOTH)
@torch.no_grad()
def test_linformer_is_attention_to_mixtures(position: type, mask: Mask) -> None:
    mixer, where = made(lambda shape: Linformer(shape, rank=3)), context(mask, position=position)
    x = torch.randn(2, LENGTH, 8)
    out = mixer(x, where)
    q, k, v = (split_heads(part, 2) for part in mixer.project(x).chunk(3, -1))
    q, k = where.position.rotate(q, where.at), where.position.rotate(k, where.at)
    at, keep = where.at.expand(2, LENGTH), torch.ones(2, LENGTH).bool() if mask.keep is None else mask.keep
    mixed = torch.zeros_like(q)
    for b, h, i in itertools.product(range(2), range(2), range(LENGTH)):
        real_ones = [j for j in range(LENGTH) if keep[b, j]]
        keys = sum(torch.outer(mixer.key_parts[at[b, j]], k[b, h, j]) for j in real_ones)  # (R, K)
        values = sum(torch.outer(mixer.value_parts[at[b, j]], v[b, h, j]) for j in real_ones)
        mixed[b, h, i] = (keys @ q[b, h, i] / 2.0).softmax(0) @ values
    close(real(mask, out), real(mask, mixer.output(merge_heads(mixed))))


def test_linformer_says_where_it_ends() -> None:
    mixer = Linformer(SHAPE)
    assert mixer.limit == 16 and mixer(torch.randn(1, 16, 8), context(Mask(), 16)).shape == (1, 16, 8)
    message = r"`Linformer` has room for 16 tokens \(`model.max_length`\), but 17 are needed"
    with pytest.raises(ValueError, match=message):
        mixer(torch.randn(1, 17, 8), context(Mask(), 17))
    with pytest.raises(NotImplementedError, match="Linformer cannot decode step by step"):
        mixer.start()


# ---- Reformer


def of(mask: Mask) -> Shape:
    """The shape of a stack that runs as the mask says."""
    return replace(SHAPE, causal=mask.causal)


def shared_attention(mixer: Reformer, where: Context, seen: Tensor) -> Callable[[Tensor], Tensor]:
    """Attention with queries for keys to what is seen, but to oneself only where that is all."""

    def attention(x: Tensor) -> Tensor:
        q, v = (split_heads(part, 2) for part in mixer.project(x).chunk(2, -1))
        q = where.position.rotate(q, where.at)
        k = q / q.norm(dim=-1, keepdim=True)
        oneself = torch.eye(x.shape[1], dtype=torch.bool)
        others = seen & ~oneself
        chosen = others | (oneself & ~others.any(-1, keepdim=True))
        logits = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~chosen, -torch.inf)
        return cast(Tensor, mixer.output(merge_heads(logits.softmax(-1) @ v)))

    return attention


@pytest.mark.parametrize("hashes", [1, 3])
@pytest.mark.parametrize("position", [NoPosition, Rotary])
@over({**BOTH, **CAUSAL, "packed": Mask(document=DOCUMENT)})
def test_one_bucket_is_full_attention_with_queries_for_keys(hashes: int, position: type, mask: Mask) -> None:
    mixer, where = made(lambda shape: Reformer(shape, 16, hashes), of(mask)), context(mask, position=position)
    same_in_values_and_gradients(lambda x: mixer(x, where), shared_attention(mixer, where, sight(mask)), mask)


def hashed_sight(mixer: Reformer, where: Context, x: Tensor) -> Tensor:
    """(B, H, L, L), what the definition lets see: the nearest of the bucket, in any round."""
    mask, q = where.mask, split_heads(mixer.project(x)[..., :8], 2)
    q = where.position.rotate(q, where.at)
    seen = torch.zeros(2, 2, LENGTH, LENGTH, dtype=torch.bool)
    company = sight(replace(mask, causal=False))[:, 0].expand(2, LENGTH, LENGTH)
    for b in range(2):
        texts = {tuple(company[b, i].nonzero().flatten().tolist()) for i in range(LENGTH) if company[b, i, i]}
        for text, h, rotation in itertools.product(texts, range(2), mixer.rotations):
            expected = SHAPE.max_length if mask.causal else len(text)
            turned = q[b, h, text] @ rotation[:, : math.ceil(expected / mixer.bucket / 2)]
            bucket = torch.cat((turned, -turned), -1).argmax(-1) * (expected > mixer.bucket)
            same = bucket.unsqueeze(-1) == bucket.unsqueeze(-2)
            place = same.tril(-1).sum(-1)  # how many earlier tokens are in the bucket
            meet = same & ((place.unsqueeze(-1) - place.unsqueeze(-2)).abs() < mixer.bucket)
            at = torch.tensor(text)
            seen[b, h, at.unsqueeze(-1), at] |= meet.tril() if mask.causal else meet
    return seen


@pytest.mark.parametrize(("bucket", "hashes"), [(1, 2), (2, 1), (2, 3), (3, 2), (5, 4)])
@over({**BOTH, **CAUSAL, "packed": Mask(document=DOCUMENT)})
@torch.no_grad()
def test_rounds_of_small_buckets_are_attention_to_their_union(bucket: int, hashes: int, mask: Mask) -> None:
    mixer, where = made(lambda shape: Reformer(shape, bucket, hashes), of(mask)), context(mask, position=Rotary)
    x = torch.randn(2, LENGTH, 8)
    seen = hashed_sight(mixer, where, x)
    assert not bool(seen.all()) and (bucket == 1 or bool((seen.sum(-1) > 1).any()))
    close(real(mask, mixer(x, where)), real(mask, shared_attention(mixer, where, seen)(x)))


@pytest.mark.parametrize("sizes", [[1] * LENGTH, [4, 1, 6], [LENGTH]], ids=str)
@pytest.mark.parametrize("bucket", [2, 5, 16])
@over({name: mask for name, mask in CAUSAL.items() if mask.document is None})
@torch.no_grad()
def test_reformer_goes_on_where_it_was(sizes: list[int], bucket: int, mask: Mask) -> None:
    stepped_equals_whole(made(lambda shape: Reformer(shape, bucket, 3), of(mask)), sizes, mask)


@torch.no_grad()
def test_reformer_takes_tokens_back_and_changes_rows() -> None:
    mixer, x = made(lambda shape: Reformer(shape, 2, 3)), torch.randn(2, LENGTH, 8)
    state = mixer.start()
    assert isinstance(state, HashedKeyValues)

    def step(part: Tensor) -> Tensor:
        length = state.length
        at = torch.arange(length + part.shape[1])
        return cast(Tensor, mixer(part, Context(Mask(causal=True), NoPosition(SHAPE), at[length:], at), state))

    step(torch.cat((x[:, :5], torch.randn(2, 3, 8)), 1))
    state.rewind(3)
    step(x[:, 5:7])
    state.reorder(torch.tensor([1, 0, 1]))
    rows = x[[1, 0, 1]]
    close(step(rows[:, 7:]), mixer(rows, context(Mask(causal=True)))[:, 7:])
    state.rewind(LENGTH)
    close(step(rows), mixer(rows, context(Mask(causal=True))))


@pytest.mark.parametrize("amount", [1, 7, 30])
@pytest.mark.parametrize("left", [False, True])
@torch.no_grad()
def test_padding_moves_no_token_into_another_bucket(amount: int, left: bool) -> None:
    mixer, x, pad = made(lambda shape: Reformer(shape, 2, 3)), torch.randn(2, LENGTH, 8), torch.full((2, amount, 8), 9.0)
    padded = torch.cat((pad, x) if left else (x, pad), 1)
    keep = (torch.arange(LENGTH + amount) >= amount).expand(2, -1)
    keep = keep if left else keep.flip(1)
    for causal in (False, True):
        mask = Mask(causal, keep)
        out = mixer(padded, context(mask, LENGTH + amount))[keep].view(2, LENGTH, 8)
        close(out, mixer(x, context(Mask(causal))))


# ---- all of them


@over_kinds
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_a_row_of_padding_is_zero(make: Callable[[Shape], Mixer], dtype: torch.dtype, causal: bool) -> None:
    mixer = make(SHAPE).to(dtype)
    if causal and "causal" not in mixer.directions:
        return
    x = torch.randn(2, LENGTH, 8, dtype=dtype, requires_grad=True)
    cast(Any, mixer).output.bias.data.zero_()
    keep = torch.tensor([[False] * LENGTH, [False] * 3 + [True] * (LENGTH - 3)])
    out = mixer(x, context(Mask(causal, keep)))
    out.float().sum().backward()
    assert out.dtype is dtype and bool((out[0] == 0).all()) and bool((out[1, 3:] != 0).any())
    gradients = [x.grad, *(parameter.grad for parameter in mixer.parameters())]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)
    assert x.grad is not None and bool((x.grad[0] == 0).all())


@over_kinds
@torch.no_grad()
def test_double_precision_stays_double(make: Callable[[Shape], Mixer]) -> None:
    mixer, x = made(make).double(), torch.randn(2, LENGTH, 8, dtype=torch.float64)
    assert mixer(x, context(Mask(keep=RIGHT))).dtype is torch.float64


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Performer(SHAPE, features=0), "`features` of Performer must be at least 1, but is 0"),
        (lambda: Performer(SHAPE, redraw_every=0), "`redraw_every` of Performer must be at least 1, or null .*, but is 0"),
        (lambda: Linformer(SHAPE, rank=0), "`rank` of Linformer must be at least 1, but is 0"),
        (lambda: Reformer(SHAPE, bucket=0), "`bucket` of Reformer must be at least 1, but is 0"),
        (lambda: Reformer(SHAPE, hashes=-1), "`hashes` of Reformer must be at least 1, but is -1"),
        (lambda: Reformer(SHAPE, dropout=1.0), "`dropout` must be at least 0 and below 1, but is 1.0"),
    ],
)
def test_impossible_options_are_refused_by_name(make: Callable[[], Mixer], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
