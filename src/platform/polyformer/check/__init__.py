"""The ledger of correctness: laws that a model, its decoding, its loss and its data must obey, shown on a user's own."""

from polyformer.check.law import Finding, NotApplicable, Result
from polyformer.check.ledger import LAWS, judge
from polyformer.check.prepare import of_checkpoint, of_settings
from polyformer.check.probe import Probe, Text
from polyformer.check.report import described, line_of, plain, summary_of
from polyformer.check.subject import Subject

__all__ = [
    "LAWS",
    "Finding",
    "NotApplicable",
    "Probe",
    "Result",
    "Subject",
    "Text",
    "described",
    "judge",
    "line_of",
    "of_checkpoint",
    "of_settings",
    "plain",
    "summary_of",
]
