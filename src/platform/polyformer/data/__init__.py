"""Data: sources, caches, batches of about N tokens, and the data modules made of them.

Names are imported on first use, since lightning and datasets take seconds to load.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyformer.data.batches import BatchSettings, TokenBatches
    from polyformer.data.cache import EncodedDataset, cache_folder, cached_tokenizer, encoded_dataset
    from polyformer.data.limits import ColumnLimits, Report, apply_limits
    from polyformer.data.loader import BatchLoader, BatchPlan, WholeTraining
    from polyformer.data.module import DataModule
    from polyformer.data.numbers import SpelledNumbers, number_pairs, spell
    from polyformer.data.pairs import Limits, PairBatch, PairData, PairTokenizerSettings, pad_rows, pair_batches
    from polyformer.data.sources import read_examples

__all__ = [
    "BatchLoader",
    "BatchPlan",
    "BatchSettings",
    "ColumnLimits",
    "DataModule",
    "EncodedDataset",
    "Limits",
    "PairBatch",
    "PairData",
    "PairTokenizerSettings",
    "Report",
    "SpelledNumbers",
    "TokenBatches",
    "WholeTraining",
    "apply_limits",
    "cache_folder",
    "cached_tokenizer",
    "encoded_dataset",
    "number_pairs",
    "pad_rows",
    "pair_batches",
    "read_examples",
    "spell",
]

MODULES = {
    "batches": ("BatchSettings", "TokenBatches"),
    "cache": ("EncodedDataset", "cache_folder", "cached_tokenizer", "encoded_dataset"),
    "limits": ("ColumnLimits", "Report", "apply_limits"),
    "loader": ("BatchLoader", "BatchPlan", "WholeTraining"),
    "module": ("DataModule",),
    "numbers": ("SpelledNumbers", "number_pairs", "spell"),
    "pairs": ("Limits", "PairBatch", "PairData", "PairTokenizerSettings", "pad_rows", "pair_batches"),
    "sources": ("read_examples",),
}


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(import_module(f"polyformer.data.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
