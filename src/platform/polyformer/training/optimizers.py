"""Optimizers beside torch's own: AdamW as one fused update; Muon for matrices with AdamW for everything else."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

__all__ = ["FusedAdamW", "MuonAdamW"]


class FusedAdamW(torch.optim.AdamW):
    """AdamW (Loshchilov and Hutter 2019) as one fused update, with the betas of Vaswani et al. 2017.

    Args:
        params: Parameters or groups of them.
        lr: Learning rate, before the schedule's factor.
        betas: Decay of the running means of gradient and squared gradient.
        eps: Added to the root of the second.
        weight_decay: Share of each matrix taken off per step and unit of learning rate.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        # Gradients of 16-mixed are then unscaled before they are weighted and clipped, not inside the fused update.
        self._step_supports_amp_scaling = False


class Muon(torch.optim.Muon):
    """Torch's Muon (Jordan et al. 2024), in float32 on a CPU.

    Torch makes its products in bfloat16, which most CPUs do several times slower than float32; everywhere else the step is
    torch's own.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        if any(parameter.device.type != "cpu" for group in self.param_groups for parameter in group["params"]):
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """One step of a matrix: Nesterov's momentum, made orthogonal and scaled to the size of AdamW's (Liu et al. 2025)."""
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        mean = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        update = orthogonalize(gradient.lerp(mean, group["momentum"]), group["ns_coefficients"], group["ns_steps"])
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(update, alpha=-group["lr"] * 0.2 * max(parameter.shape) ** 0.5)


def orthogonalize(matrix: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    """About U V^T of the matrix U S V^T, by Newton-Schulz steps X <- a X + b (X X^T) X + c (X X^T)^2 X.

    >>> orthogonalize(torch.tensor([[9.0, 0.0], [0.0, 4.0]]), (2.0, -1.5, 0.5), 12).round(decimals=3).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    a, b, c = coefficients
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.t()
    x = wide / wide.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide is matrix else x.t()


class MuonAdamW(Optimizer):
    """Orthogonalized momentum for matrices (:class:`Muon`), AdamW for embeddings, norms and biases.

    Updates of matrices are scaled to the size of AdamW's (Liu et al. 2025), so that one learning rate serves both.
    A packed projection of queries, keys and values is orthogonalized as one matrix.

    Args:
        params: Groups as :func:`~polyformer.training.recipe.parameter_groups` makes them, some of the kind "matrices".
        lr: Learning rate, before the schedule's factor.
        momentum: Of the matrices' gradients.
        betas: Of AdamW.
        weight_decay: Share of each decaying weight taken off per step and unit of learning rate.

    Raises:
        ValueError: If there is no trained linear layer.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        weight_decay: float = 0.0,
    ) -> None:
        groups = list(params)
        matrices = [group for group in groups if group.get("kind") == "matrices"]
        if not matrices:
            raise ValueError(
                "`training.optimizer` MuonAdamW is for linear layers, of which none is trained here; use FusedAdamW"
            )
        others = [group for group in groups if group.get("kind") != "matrices"]
        self.parts: list[Optimizer] = [
            Muon(matrices, lr=lr, momentum=momentum, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        ]
        if others:
            self.parts.append(FusedAdamW(others, lr=lr, betas=betas, weight_decay=weight_decay))
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Makes the parts' groups and states ours too, so that schedules and checkpoints see one optimizer."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]
        for part in self.parts:
            self.state.update(part.state)
            part.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups, part.state = [next(groups) for _ in part.param_groups], self.state
