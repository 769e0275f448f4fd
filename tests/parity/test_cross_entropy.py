"""The chunked loss against torch's cross-entropy: its value, both gradients, its counts, in every type of number."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from polyformer.training import losses
from polyformer.training.losses import linear_cross_entropy

from .copying import close

N, D, V = 23, 6, 11
smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])


def given(dtype: torch.dtype = torch.float32, tokens: int = N) -> tuple[Tensor, Tensor, Tensor]:
    hidden = (2 * torch.randn(tokens, D)).to(dtype).requires_grad_()
    weight = torch.randn(V, D).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(V, (tokens,))


def rows_per_chunk(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(losses, "CHUNK_BYTES", {"cpu": 4 * V * rows})


@smoothings
@pytest.mark.parametrize("rows", [1, 5, 22, 23, 24, 1000])
def test_equals_torch_however_chunks_are_cut(monkeypatch: pytest.MonkeyPatch, smoothing: float, rows: int) -> None:
    rows_per_chunk(monkeypatch, rows)
    hidden, weight, target = given()
    logits = hidden @ weight.t()
    ours = linear_cross_entropy(hidden, weight, target, smoothing)
    theirs = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    close(ours.loss, theirs)
    close(ours.negative_log_likelihood, F.cross_entropy(logits, target, reduction="sum"))
    assert int(ours.correct) == int((logits.argmax(-1) == target).sum())
    wanted = (hidden, weight)
    for one, other in zip(torch.autograd.grad(ours.loss, wanted), torch.autograd.grad(theirs, wanted), strict=True):
        close(one, other)


def test_chunks_are_really_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    whole = losses._chunk_sums

    def counted(logits: Tensor, *rest: object) -> Tensor:
        sizes.append(len(logits))
        return whole(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(losses, "_chunk_sums", counted)
    rows_per_chunk(monkeypatch, 5)
    linear_cross_entropy(*given())
    assert sizes == [5, 5, 5, 5, 3]


@smoothings
def test_gradient_equals_finite_differences_in_float64(smoothing: float) -> None:
    hidden, weight, target = given(torch.float64, tokens=4)

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return linear_cross_entropy(x, w, target, smoothing).loss

    assert torch.autograd.gradcheck(loss, (hidden, weight), eps=1e-6, atol=1e-7, rtol=1e-6)


@smoothings
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_every_type_of_number(dtype: torch.dtype, smoothing: float) -> None:
    """As with `precision: bf16-true`: weights and vectors themselves are of that type."""
    hidden, weight, target = given(dtype)
    ours = linear_cross_entropy(hidden, weight, target, smoothing)
    x, w = (part.detach().double().requires_grad_() for part in (hidden, weight))
    theirs = F.cross_entropy(x @ w.t(), target, reduction="sum", label_smoothing=smoothing)
    tolerance = {torch.float64: 1e-12, torch.bfloat16: 0.03, torch.float16: 0.004}[dtype]
    close(ours.loss.double(), theirs, tolerance)
    ours.loss.backward()
    theirs.backward()
    for part, exact in ((hidden, x), (weight, w)):
        assert part.grad is not None and part.grad.dtype is dtype and exact.grad is not None
        scale = float(exact.grad.abs().max())
        close(part.grad.double() / scale, exact.grad / scale, tolerance)


@smoothings
def test_autocast_to_bfloat16(smoothing: float) -> None:
    hidden, weight, target = given()
    with torch.autocast("cpu", torch.bfloat16):
        ours = linear_cross_entropy(hidden, weight, target, smoothing)
        half = linear_cross_entropy(hidden.detach().bfloat16().requires_grad_(), weight, target, smoothing)
    ours.loss.backward()
    assert hidden.grad is not None and weight.grad is not None
    assert ours.loss.dtype is hidden.grad.dtype is weight.grad.dtype is torch.float32
    theirs = F.cross_entropy(hidden @ weight.t(), target, reduction="sum", label_smoothing=smoothing)
    close(ours.loss, theirs.detach(), 0.02)
    close(half.loss, theirs.detach(), 0.02)
    for part, exact in zip((hidden, weight), torch.autograd.grad(theirs, (hidden, weight)), strict=True):
        assert part.grad is not None
        close(part.grad / exact.abs().max(), exact / exact.abs().max(), 0.03)


def test_autocast_with_half_vectors_gives_each_its_own_type() -> None:
    hidden, weight, target = given()
    hidden = hidden.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        linear_cross_entropy(hidden, weight, target, 0.1).loss.backward()
    assert hidden.grad is not None and weight.grad is not None
    assert hidden.grad.dtype is torch.bfloat16 and weight.grad.dtype is torch.float32


def test_large_logits_neither_overflow_nor_vanish() -> None:
    hidden, weight, target = given()
    with torch.no_grad():
        hidden.mul_(1e3)
    ours = linear_cross_entropy(hidden, weight, target, 0.1)
    close(ours.loss, F.cross_entropy(hidden @ weight.t(), target, reduction="sum", label_smoothing=0.1))
    ours.loss.backward()
    assert hidden.grad is not None and bool(hidden.grad.isfinite().all())


@pytest.mark.parametrize("factor", [1.0, -2.5])
def test_the_gradient_is_scaled_by_what_follows(factor: float) -> None:
    hidden, weight, target = given()
    plain = torch.autograd.grad(linear_cross_entropy(hidden, weight, target).loss, (hidden, weight))
    scaled = torch.autograd.grad(linear_cross_entropy(hidden, weight, target).loss * factor, (hidden, weight))
    for one, other in zip(plain, scaled, strict=True):
        close(one * factor, other)


def test_only_the_loss_has_a_gradient() -> None:
    result = linear_cross_entropy(*given())
    assert result.loss.requires_grad
    assert not result.negative_log_likelihood.requires_grad and not result.correct.requires_grad


def test_the_loss_can_be_changed_in_place() -> None:
    hidden, weight, target = given()
    loss = linear_cross_entropy(hidden, weight, target).loss
    loss /= 4.0
    loss.backward()
    expected = torch.autograd.grad(linear_cross_entropy(hidden, weight, target).loss / 4.0, hidden)[0]
    assert hidden.grad is not None
    close(hidden.grad, expected)


def test_no_tokens_give_no_loss() -> None:
    hidden, weight, target = given(tokens=0)
    result = linear_cross_entropy(hidden, weight, target, 0.1)
    result.loss.backward()
    assert float(result.loss.detach()) == float(result.correct) == 0.0
    assert weight.grad is not None and bool((weight.grad == 0).all())


class Products(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += str(func) in ("aten.mm.default", "aten.matmul.default") and args[1].dim() == 2
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode], ids=lambda guard: guard.__name__)
def test_validation_makes_no_gradient(guard: type[torch.no_grad]) -> None:
    hidden, weight, target = given()
    with guard(), Products() as products:
        result = linear_cross_entropy(hidden, weight, target, 0.1)
    close(result.loss, linear_cross_entropy(hidden, weight, target, 0.1).loss.detach())
    assert products.count == 1


def test_inputs_are_left_as_they_were() -> None:
    hidden, weight, target = given()
    before = [part.detach().clone() for part in (hidden, weight, target)]
    linear_cross_entropy(hidden, weight, target, 0.1).loss.backward()
    assert all(torch.equal(part, old) for part, old in zip((hidden, weight, target), before, strict=True))


@pytest.mark.parametrize("frozen", [0, 1])
def test_one_side_may_be_frozen(frozen: int) -> None:
    hidden, weight, target = given()
    (hidden, weight)[frozen].requires_grad_(False)
    linear_cross_entropy(hidden, weight, target).loss.backward()
    logits = hidden @ weight.t()
    trained = (weight, hidden)[frozen]
    expected = torch.autograd.grad(F.cross_entropy(logits, target, reduction="sum"), trained)[0]
    assert trained.grad is not None and (hidden, weight)[frozen].grad is None
    close(trained.grad, expected)
