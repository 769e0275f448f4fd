"""Compiled blocks: once for all shapes, the same results, the same names; and only in training steps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from polyformer.cli.quiet import quiet
from polyformer.models import DecoderOnly, DecoderOnlyOptions, Placement
from polyformer.nn import Rotary
from polyformer.training.compiling import Compiling

from ..cli.small import fit

SHAPES = [(2, 7), (3, 5), (4, 11), (5, 6), (2, 13)]
OPTIONS = DecoderOnlyOptions(d_model=16, num_heads=2, num_layers=2, dropout=0.0, position=Rotary)


@pytest.fixture
def counter() -> Iterator[CompileCounter]:
    quiet()
    torch._dynamo.reset()
    yield CompileCounter()
    torch._dynamo.reset()


def gradients(network: DecoderOnly, tokens: Tensor) -> list[Tensor]:
    """Of a loss that every weight has a part in; the second half of each row is another document."""
    document = (torch.arange(tokens.shape[1]) >= tokens.shape[1] // 2).long().expand_as(tokens)
    network.zero_grad()
    network.logits(network(tokens, Placement(document=document))).square().mean().backward()
    return [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]


def test_blocks_are_compiled_once_for_all_shapes(counter: CompileCounter) -> None:
    network, compiling = DecoderOnly(11, OPTIONS).train(), Compiling(counter)
    batches = [torch.randint(4, 11, shape) for shape in SHAPES]
    plain, names = [gradients(network, tokens) for tokens in batches], list(network.state_dict())
    compiling.on_train_start(cast(Any, None), cast(Any, network))
    for tokens, expected in zip(batches, plain, strict=True):
        for gradient, other in zip(gradients(network, tokens), expected, strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-7)
    assert counter.frame_count == 1  # one kind of block, whole, for five shapes and two layers
    assert list(network.state_dict()) == names
    with torch.no_grad():
        network(torch.randint(4, 11, (1, 1)))  # runs as it is
    assert counter.frame_count == 1
    compiling.on_train_end(cast(Any, None), cast(Any, network))
    assert not any("forward" in vars(module) for module in network.modules())


def test_the_flag_compiles_each_block_for_training_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, with_gradients = [], list[bool]()

    def fake(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        compiled.append((cast(nn.Module, function.__self__).__class__.__name__, options["dynamic"]))  # type: ignore[attr-defined]

        def run(*arguments: Any) -> Any:
            with_gradients.append(torch.is_grad_enabled())
            return function(*arguments)

        return run

    words = ("--trainer.max_steps", "4", "--trainer.val_check_interval", "2", "--data.evaluation_count", "3")
    monkeypatch.setattr(torch, "compile", fake)
    assert fit(tmp_path, *words, "--training.compile", "true", "--training.averaging.kind", "ema") == 0
    assert compiled == [("EncoderBlock", True), ("DecoderBlock", True)]
    assert with_gradients == [True] * 8  # two blocks, four steps; no validation, no decoding
    content = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert not any({"forward", "_orig_mod"} & set(name.split(".")) for name in content["state_dict"])
