"""Decoding from a state gives what the whole sequence gives, however it is cut and reordered."""

import pytest
import torch
from torch import Tensor

from polyformer.models import StackState
from polyformer.nn import Memory

from .cases import D_MODEL, MAX_LENGTH, Case, Subject, close, over_causal, over_language_models, over_one_norm_causal, rows_of

LENGTH = 9


def in_chunks(subject: Subject, x: Tensor, memory: Memory | None, sizes: list[int]) -> Tensor:
    state = subject.stack.start()
    return torch.cat([subject(part, memory, state) for part in x.split(sizes, dim=1)], dim=1)


@over_causal
@torch.no_grad()
def test_cut_anywhere_equals_whole(case: Case) -> None:
    subject = case.build()
    x, memory = torch.randn(2, LENGTH, D_MODEL), subject.memory(2)
    whole = subject(x, memory)
    for sizes in ([1] * LENGTH, [4, 1, 4], [LENGTH]):
        close(in_chunks(subject, x, memory, sizes), whole, f"in chunks of {sizes}")


class Decode:
    """A decode and, beside it, all that its rows have been: what the state must be equal to."""

    def __init__(self, subject: Subject, sentences: int, rows_each: int) -> None:
        self.subject, self.memory = subject, subject.memory(sentences)
        self.sentence = torch.arange(sentences).repeat_interleave(rows_each)
        self.history = torch.empty(len(self.sentence), 0, D_MODEL)
        self.state: StackState = subject.stack.start()

    def step(self, length: int = 1) -> None:
        new = torch.randn(len(self.sentence), length, D_MODEL)
        self.history = torch.cat((self.history, new), dim=1)
        stepped = self.subject(new, self.memory, self.state)
        whole = self.subject(self.history, rows_of(self.memory, self.sentence))
        close(stepped, whole[:, -length:])

    def reorder(self, rows: list[int]) -> None:
        chosen = torch.tensor(rows)
        self.state.reorder(chosen)
        self.history, self.sentence = self.history[chosen], self.sentence[chosen]


@over_one_norm_causal
@torch.no_grad()
def test_reordered_across_sentences_equals_recomputed(case: Case) -> None:
    decode = Decode(case.build(), sentences=3, rows_each=1)
    decode.step(2)
    for rows in ([2, 0, 1], [1, 1, 0, 2], [3, 0, 0], [1]):
        decode.reorder(rows)
        decode.step()


@over_one_norm_causal
@torch.no_grad()
def test_reordered_within_a_beam_equals_recomputed(case: Case) -> None:
    decode = Decode(case.build(), sentences=3, rows_each=1)
    decode.step()
    for rows in (
        [0, 0, 0, 1, 1, 1, 2, 2, 2],  # one hypothesis becomes three
        [2, 0, 0, 4, 3, 3, 8, 8, 7],  # each beam keeps to its sentence
        [0, 1, 2, 8, 6, 6],  # the second sentence is done
        [1, 0, 3, 3],  # the beam gets narrower
        [3, 2, 1, 0],  # the sentences change places
        [0, 0, 0, 2],  # and get beams of different width
        [3, 1, 1, 0],
    ):
        decode.reorder(rows)
        decode.step()


@over_one_norm_causal
@torch.no_grad()
def test_rows_of_a_sentence_share_its_memory_from_the_first_step(case: Case) -> None:
    decode = Decode(case.build(), sentences=2, rows_each=3)
    decode.step(3)
    decode.reorder([1, 1, 2, 5, 3, 4])
    decode.step(2)


@over_one_norm_causal
@torch.no_grad()
def test_a_state_outgrows_its_first_buffer(case: Case) -> None:
    subject = case.build()
    x, memory = torch.randn(1, 40, D_MODEL), subject.memory(1)
    assert x.shape[1] < MAX_LENGTH
    close(in_chunks(subject, x, memory, [3, 14, 1, 21, 1]), subject(x, memory))


@over_language_models
@torch.no_grad()
def test_tokens_that_are_taken_back_leave_nothing(case: Case) -> None:
    subject, most = case.build(), case.mixer.kind.takes_back
    x, state, count = torch.randn(1, 24, D_MODEL), subject.stack.start(), 16 if most is None else min(most, 16)
    subject(torch.cat((x[:, : 24 - count], torch.randn(1, max(1, count), D_MODEL)), dim=1), None, state)
    if not count:
        with pytest.raises(NotImplementedError):
            state.rewind(1)
        return
    state.rewind(count)
    close(subject(x[:, 24 - count :], None, state), subject(x)[:, 24 - count :])


@over_one_norm_causal
@torch.no_grad()
def test_two_decodes_do_not_disturb_each_other(case: Case) -> None:
    subject = case.build()
    one, two = Decode(subject, 2, 1), Decode(subject, 1, 2)
    for _ in range(3):
        one.step()
        two.step()
