"""Data: sources, caches, batches of about N tokens, and the data modules made of them.

Names are imported on first use, since lightning and datasets take seconds to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyformer.data.batches import BatchSettings, TokenBatches
    from polyformer.data.cache import EncodedDataset, cache_folder, cached_tokenizer, encoded_dataset
    from polyformer.data.cutting import TextLimits, cut_ids, cut_together
    from polyformer.data.encoding import TextReport
    from polyformer.data.examples import ExampleData
    from polyformer.data.labelled import LabelledData
    from polyformer.data.labels import Labelling, TargetSettings, make_labelling
    from polyformer.data.library import PythonLibrary
    from polyformer.data.library_lines import LibraryLines
    from polyformer.data.limits import ColumnLimits, Report, Together, apply_limits
    from polyformer.data.listops import ExpressionLimits, ListOps, draw_expressions
    from polyformer.data.loader import BatchLoader, BatchPlan, TrainingLoader, WholeTraining
    from polyformer.data.masked_rows import MaskedBatch, masked_batch
    from polyformer.data.masked_text import MaskedTextData
    from polyformer.data.masking import MaskingSettings
    from polyformer.data.mixture import MixedData, PartBatch, part_assets
    from polyformer.data.module import DataModule
    from polyformer.data.numbers import SpelledNumbers, number_pairs, spell
    from polyformer.data.pairs import Limits, PairBatch, PairData, PairTokenizerSettings, encode_texts, pad_rows, pair_batches
    from polyformer.data.sources import read_examples
    from polyformer.data.text_array import TextArray, encoded_text
    from polyformer.data.text_batch import Layout, TextBatch, batch_windows
    from polyformer.data.text_data import TextData, TextTokenizerSettings
    from polyformer.data.text_rows import LabelledBatch, batch_texts, text_batches
    from polyformer.data.text_stream import TextStream
    from polyformer.data.windows import EvaluationPlan, EvaluationWindows, TrainingWindows, WindowPlan

__all__ = [
    "BatchLoader",
    "BatchPlan",
    "BatchSettings",
    "ColumnLimits",
    "DataModule",
    "EncodedDataset",
    "EvaluationPlan",
    "EvaluationWindows",
    "ExampleData",
    "ExpressionLimits",
    "LabelledBatch",
    "LabelledData",
    "Labelling",
    "Layout",
    "LibraryLines",
    "Limits",
    "ListOps",
    "MaskedBatch",
    "MaskedTextData",
    "MaskingSettings",
    "MixedData",
    "PairBatch",
    "PairData",
    "PairTokenizerSettings",
    "PartBatch",
    "PythonLibrary",
    "Report",
    "SpelledNumbers",
    "TargetSettings",
    "TextArray",
    "TextBatch",
    "TextData",
    "TextLimits",
    "TextReport",
    "TextStream",
    "TextTokenizerSettings",
    "Together",
    "TokenBatches",
    "TrainingLoader",
    "TrainingWindows",
    "WholeTraining",
    "WindowPlan",
    "apply_limits",
    "batch_texts",
    "batch_windows",
    "cache_folder",
    "cached_tokenizer",
    "cut_ids",
    "cut_together",
    "draw_expressions",
    "encode_texts",
    "encoded_dataset",
    "encoded_text",
    "make_labelling",
    "masked_batch",
    "number_pairs",
    "pad_rows",
    "pair_batches",
    "part_assets",
    "read_examples",
    "spell",
    "text_batches",
]

MODULES = {
    "batches": ("BatchSettings", "TokenBatches"),
    "cache": ("EncodedDataset", "cache_folder", "cached_tokenizer", "encoded_dataset"),
    "cutting": ("TextLimits", "cut_ids", "cut_together"),
    "encoding": ("TextReport",),
    "examples": ("ExampleData",),
    "labelled": ("LabelledData",),
    "labels": ("Labelling", "TargetSettings", "make_labelling"),
    "library": ("PythonLibrary",),
    "library_lines": ("LibraryLines",),
    "limits": ("ColumnLimits", "Report", "Together", "apply_limits"),
    "listops": ("ExpressionLimits", "ListOps", "draw_expressions"),
    "loader": ("BatchLoader", "BatchPlan", "TrainingLoader", "WholeTraining"),
    "masked_rows": ("MaskedBatch", "masked_batch"),
    "masked_text": ("MaskedTextData",),
    "masking": ("MaskingSettings",),
    "mixture": ("MixedData", "PartBatch", "part_assets"),
    "module": ("DataModule",),
    "numbers": ("SpelledNumbers", "number_pairs", "spell"),
    "pairs": ("Limits", "PairBatch", "PairData", "PairTokenizerSettings", "encode_texts", "pad_rows", "pair_batches"),
    "sources": ("read_examples",),
    "text_array": ("TextArray", "encoded_text"),
    "text_batch": ("Layout", "TextBatch", "batch_windows"),
    "text_data": ("TextData", "TextTokenizerSettings"),
    "text_rows": ("LabelledBatch", "batch_texts", "text_batches"),
    "text_stream": ("TextStream",),
    "windows": ("EvaluationPlan", "EvaluationWindows", "TrainingWindows", "WindowPlan"),
}


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(import_module(f"polyformer.data.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
