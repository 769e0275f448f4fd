"""The ledger of correctness: all laws, in the order in which they are judged by."""

from collections.abc import Callable, Iterator

import torch

from polyformer.check import data, decoding, loss, model, storage
from polyformer.check.law import Finding, NotApplicable, Result
from polyformer.check.subject import Subject

__all__ = ["LAWS", "NEEDS", "Law", "judge", "words_of"]

Law = Callable[[Subject], Result]

LAWS: tuple[Law, ...] = (
    model.finite,
    model.causal,
    model.sparse,
    model.unhidden,
    model.right_padding,
    model.left_padding,
    model.batch_order,
    model.packed,
    model.evaluation,
    model.seeing_nothing,
    model.too_long,
    decoding.cached,
    decoding.chunked,
    decoding.onward,
    decoding.reordered,
    decoding.greedy,
    decoding.rescored,
    decoding.mates,
    data.readable,
    data.splits,
    data.epoch,
    data.ranks,
    data.rest,
    data.measured_once,
    data.round_trip,
    data.odd_texts,
    loss.parts,
    loss.padding,
    loss.closed_form,
    loss.gradients,
    loss.accumulation,
    loss.metrics,
    storage.saved,
    storage.tied,
    storage.resumed,
)
"""A law is a function of a subject; its name is the law's, and its docstring says it."""

NEEDS: dict[Law, tuple[Law, ...]] = {
    model.causal: (model.finite,),
    model.sparse: (model.finite, model.causal),
    model.unhidden: (model.finite, model.causal),
    model.right_padding: (model.sparse, model.causal),
    model.left_padding: (model.right_padding,),
    model.batch_order: (model.finite,),
    model.packed: (model.sparse, model.causal),
    model.evaluation: (model.finite,),
    model.seeing_nothing: (model.finite,),
    decoding.cached: (model.finite, model.causal),
    decoding.chunked: (decoding.cached,),
    decoding.onward: (decoding.cached, model.sparse),
    decoding.reordered: (decoding.cached, model.batch_order),
    decoding.greedy: (decoding.cached, model.batch_order, model.left_padding),
    decoding.rescored: (decoding.reordered, decoding.greedy, decoding.onward),
    decoding.mates: (decoding.reordered, decoding.greedy),
    loss.parts: (model.finite, model.batch_order),
    loss.padding: (loss.parts, model.right_padding),
    loss.closed_form: (loss.parts,),
    loss.gradients: (model.finite,),
    loss.accumulation: (loss.padding, loss.gradients),
    loss.metrics: (data.splits, loss.padding, decoding.mates),
    storage.saved: (model.finite,),
    storage.resumed: (storage.saved, storage.tied, loss.gradients),
    data.ranks: (data.epoch,),
    data.rest: (data.epoch,),
    data.measured_once: (data.splits,),
}
"""Laws that must hold for another one to tell anything: where one is broken, what follows from it is no further finding."""


def judge(subject: Subject) -> Iterator[Finding]:
    """Judges by one law after another."""
    blocked: dict[Law, str] = {}
    for law in LAWS:
        cause = next((blocked[need] for need in NEEDS.get(law, ()) if need in blocked), None)
        if cause is not None:
            result = Result("not applicable", f"tells nothing while `{cause}` fails")
        else:
            result = _judged(law, subject)
        if cause is not None or result.outcome == "fail":
            blocked[law] = cause or law.__name__
        yield Finding(law.__module__.rpartition(".")[2], law.__name__, words_of(law), result)


def _judged(law: Law, subject: Subject) -> Result:
    """What a law finds; it fails where it ends in an error."""
    torch.manual_seed(0)
    try:
        return law(subject)
    except (NotApplicable, NotImplementedError) as reason:
        return Result("not applicable", str(reason))
    except Exception as error:
        told = str(error).strip().partition("\n")[0]
        return Result("fail", f"{type(error).__name__}: {told}")


def words_of(law: Law) -> str:
    """A law in words."""
    return (law.__doc__ or "").partition("\n")[0].removesuffix(".")
