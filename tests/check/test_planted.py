"""Faults are planted one by one; each breaks the law that it should, and no other."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import polyformer.nn.attention as attention
import polyformer.nn.mixers.sliding_window as sliding_window
import polyformer.tasks.translation as translation
from polyformer.check import Subject
from polyformer.data import BatchLoader, TokenBatches
from polyformer.models import StackState
from polyformer.nn import KeyValues, Learned, Mask, NgramEmbedding, Relative, Residual, SlidingWindow, Where, attend
from polyformer.tasks.classification import Classification
from polyformer.tasks.language_modeling import LanguageModeling
from polyformer.tasks.translation import Translation
from polyformer.text import Tokenizer
from polyformer.training import Loss, Task

from .small import KINDS, broken, judged, make, write_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("planted")
    write_data(made)
    return made


WRITTEN = {"cached", "chunked", "onward", "reordered", "greedy", "rescored", "mates"}
HIDING = {"sparse", "unhidden"}
LEFT_OUT = {
    "Translation": {"packed", *HIDING},
    "LanguageModeling": {"padding", "too_long"},
    "Classification": {"causal", *HIDING, "packed", "tied", *WRITTEN},
    "MaskedLanguageModeling": {"causal", "packed", "tied", "closed_form", *WRITTEN},
}
"""The laws that do not speak of these models."""
OTHER_MIXERS = {
    "Translation": ["--model.mixer", "Linformer", "--model.decoder_mixers", "[FullAttention]", "--model.max_length", "256"],
    "LanguageModeling": ["--model.mixer", "SlidingWindow", "--model.mixer.window", "72", "--model.position", "Rotary",
                         "--model.max_length", "320", "--data.window", "320", "--data.batches.tokens", "640"],
    "MaskedLanguageModeling": ["--model.mixer", "BigBird", "--model.mixer.block", "2", "--model.position", "ALiBi"],
}  # fmt: skip
"""An encoder with room for fewer tokens than its decoder, windows whose cache forgets, blocks."""


@pytest.mark.parametrize("task", KINDS)
def test_where_nothing_is_planted_all_laws_hold(folder: Path, task: str) -> None:
    found = judged(make(folder, task, *OTHER_MIXERS.get(task, [])))
    assert {name for name, outcome in found.items() if outcome == "not applicable"} == LEFT_OUT[task]
    assert all(outcome == "pass" for name, outcome in found.items() if name not in LEFT_OUT[task])


Plant = Callable[[pytest.MonkeyPatch], None]


def after(owner: Any, name: str, change: Callable[..., Any]) -> Plant:
    """A plant that changes what a method gives: ``change(result, self, *arguments)``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)

        def planted(*given: Any, **named: Any) -> Any:
            return change(original(*given, **named), *given, **named)

        patch.setattr(owner, name, planted)

    return plant


def a_mask_that_leaks(patch: pytest.MonkeyPatch) -> None:
    """A token sees the one after it."""
    original = Mask.dense
    patch.setattr(Mask, "is_plain_causal", lambda mask, q_at, k_at: False)
    patch.setattr(Mask, "dense", lambda mask, q_at, k_at: original(mask, q_at + 1, k_at))


def a_pad_that_counts(patch: pytest.MonkeyPatch) -> None:
    original = Mask.dense
    patch.setattr(Mask, "dense", lambda mask, q_at, k_at: original(replace(mask, keep=None), q_at, k_at))


def ngrams_that_read_padding(patch: pytest.MonkeyPatch) -> None:
    original = NgramEmbedding.forward
    patch.setattr(NgramEmbedding, "forward", lambda ngrams, tokens, keep: original(ngrams, tokens))


def documents_that_see_each_other(patch: pytest.MonkeyPatch) -> None:
    original = Mask.dense
    patch.setattr(Mask, "dense", lambda mask, q_at, k_at: original(replace(mask, document=None), q_at, k_at))


def a_cache_offset_by_one(patch: pytest.MonkeyPatch) -> None:
    """Tokens that follow a state are placed one too far."""
    original = StackState.place

    def late(state: StackState, x: torch.Tensor, at: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        follows = state.at is not None
        new, all_of_them = original(state, x, at)
        return new + follows, all_of_them

    patch.setattr(StackState, "place", late)


def turned(bias: torch.Tensor, position: Relative, q: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """A bias whose sign is wrong where the keys are not only those of the queries."""
    return bias if q.shape[-2] == rest[-1].shape[-1] else -bias


def untied(result: Any, task: Task, *_: Any) -> Any:
    network: Any = task.network
    network.output = copy.deepcopy(network.output)
    return result


def perturbed(result: Any, task: Task, *_: Any) -> Any:
    with torch.no_grad():
        next(task.parameters()).mul_(1.0 + 1e-6)
    return result


def unused(result: None, task: Task, *_: Any, **named: Any) -> None:
    task.forgotten = nn.Parameter(torch.ones(3))


def endless(result: None, task: Task, *_: Any, **named: Any) -> None:
    """A weight that no shaking can move from where nothing is a number."""
    next(task.network.decoder.parameters()).data.fill_(torch.inf)  # type: ignore[union-attr]


def blind(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, where: Where, *rest: Any) -> torch.Tensor:
    """Attention that divides by zero where nothing is seen."""
    seen = where.mask.dense(where.q_at, where.k_at).any(dim=-1, keepdim=True)
    return attend(q, k, v, where, *rest) / seen


def step_of_means(patch: pytest.MonkeyPatch) -> None:
    """Each batch of a step weighs the same, however many tokens are in it."""
    original = Task.training_step

    def planted(task: Task, batch: Any, batch_idx: int) -> torch.Tensor:
        return original(task, batch, batch_idx) / task.loss(batch).count

    patch.setattr(Task, "training_step", planted)


PLANTED: list[tuple[str, str, Plant, str]] = [
    # faults that other toolkits have had
    ("a mask that leaks", "Translation", a_mask_that_leaks, "causal"),
    ("a mask that leaks", "LanguageModeling", a_mask_that_leaks, "causal"),
    ("a pad that counts", "Translation", a_pad_that_counts, "right_padding"),
    ("a pad that counts", "LanguageModeling", a_pad_that_counts, "left_padding"),
    ("a pad that counts", "Classification", a_pad_that_counts, "right_padding"),
    ("n-grams that read padding", "Classification", ngrams_that_read_padding, "left_padding"),
    ("a cache offset by one", "Translation", a_cache_offset_by_one, "cached"),
    ("a cache offset by one", "LanguageModeling", a_cache_offset_by_one, "cached"),
    ("a bias with the wrong sign when cached", "LanguageModeling", after(Relative, "bias", turned), "cached"),
    ("weights that are untied by loading", "Translation", after(Translation, "load_state_dict", untied), "tied"),
    ("weights that are untied by loading", "LanguageModeling", after(LanguageModeling, "load_state_dict", untied), "tied"),
    ("a sampler that drops the last batch", "Translation",
     after(TokenBatches, "plan", lambda batches, plan, epoch: batches[:-1] if plan.shuffle else batches), "epoch"),
    # others
    ("a row that sees its mates", "Classification",
     after(Residual, "forward", lambda x, *_: x + 0.1 * x.mean(dim=0, keepdim=True)), "batch_order"),
    ("a row that sees its mates", "Translation",
     after(Residual, "forward", lambda x, *_: x + 0.1 * x.mean(dim=0, keepdim=True)), "batch_order"),
    ("a loss averaged over its batch", "Translation",
     after(Translation, "loss", lambda loss, *_: replace(loss, total=loss.total / loss.count)), "parts"),
    ("a loss that counts padding", "Translation",
     after(Translation, "loss", lambda loss, task, batch: Loss(loss.total, torch.tensor(batch.target.numel()))), "padding"),
    ("smoothing that is forgotten", "Translation",
     lambda patch: patch.setattr(
         translation, "sequence_loss", lambda *given, original=translation.sequence_loss: original(*given[:4])), "closed_form"),
    ("batches that are averaged before they are summed", "Translation", step_of_means, "accumulation"),
    ("metrics averaged over batches", "Classification",
     after(Classification, "evaluate", lambda found, task, batch, split: (
         replace(found[0], sums={"reported": found[0].sums["reported"] / len(batch) ** 2}), found[1])), "metrics"),
    ("a weight that nothing uses", "Classification", after(Classification, "__init__", unused), "gradients"),
    ("a weight that is infinite", "Translation", after(Translation, "__init__", endless), "finite"),
    ("documents that see each other", "LanguageModeling", documents_that_see_each_other, "packed"),
    ("training that differs from evaluation", "Classification",
     after(Residual, "forward", lambda x, block, *_: 1.1 * x if block.training else x), "evaluation"),
    ("no number where nothing is seen", "Classification", lambda patch: patch.setattr(attention, "attend", blind),
     "seeing_nothing"),
    ("a place beyond the last one", "Classification",
     lambda patch: patch.setattr(Learned, "check_length", lambda position, length: None), "too_long"),
    ("rows that stay where they were", "LanguageModeling",
     lambda patch: patch.setattr(KeyValues, "reorder", lambda state, rows: None), "reordered"),
    ("a cache that forgets", "LanguageModeling", after(KeyValues, "append", lambda kept, *_: tuple(
        torch.cat((torch.zeros_like(part[:, :, :-30]), part[:, :, -30:]), dim=2) for part in kept)), "onward"),
    ("loading that changes a digit", "Classification", after(Classification, "load_state_dict", perturbed), "saved"),
    ("a rank that has less to do", "Translation",
     after(TokenBatches, "split", lambda part, plan, batch, rank, world: part[:rank + world == 2 or None]
           if plan.shuffle else part), "ranks"),
    ("a batch that is left out when a training goes on", "Classification",
     after(BatchLoader, "state_dict", lambda state, *_: state | {"batch": state["batch"] + 1}), "rest"),
    ("dropout that does not follow from the step", "Translation",
     lambda patch: patch.setattr(Task, "on_train_batch_start", lambda *_: None), "resumed"),
    ("a text without its double spaces", "Translation",
     after(Tokenizer, "decode", lambda text, *_: " ".join(text.split())), "odd_texts"),
]  # fmt: skip
"""What is planted, where, how, and the law that it breaks."""


@pytest.mark.parametrize(
    ("task", "plant", "law"),
    [pytest.param(*how, id=f"{fault}-{how[0]}".replace(" ", "_")) for fault, *how in PLANTED],
)
def test_a_planted_fault_breaks_its_law(
    folder: Path, monkeypatch: pytest.MonkeyPatch, task: str, plant: Plant, law: str
) -> None:
    plant(monkeypatch)
    if law not in ("saved", "tied"):  # loading takes as long as all other laws together
        monkeypatch.setattr(Subject, "reloaded", property(lambda subject: subject.task))
    assert broken(make(folder, task)) == {law}


def windows_that_see_ahead(patch: pytest.MonkeyPatch) -> None:
    original = sliding_window.attend_near

    def planted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, where: Where, probability: float) -> torch.Tensor:
        return original(q, k, v, replace(where, mask=replace(where.mask, causal=False)), probability)

    patch.setattr(sliding_window, "attend_near", planted)


IN_WINDOWS = [
    (windows_that_see_ahead, "sparse"),
    (after(sliding_window.LatestKeyValues, "__init__", lambda _, kept, *__: setattr(kept, "latest", 1)), "onward"),
    (after(SlidingWindow, "forward", lambda x, *_: 1.01 * x), "unhidden"),
]
"""Faults of long texts, and one of short ones."""


@pytest.mark.parametrize(("plant", "law"), IN_WINDOWS, ids=[law for _, law in IN_WINDOWS])
def test_a_fault_planted_in_windows_breaks_its_law(
    folder: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant, law: str
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(Subject, "reloaded", property(lambda subject: subject.task))
    assert broken(make(folder, "LanguageModeling", *OTHER_MIXERS["LanguageModeling"])) == {law}
