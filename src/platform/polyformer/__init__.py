"""Polyformer: train, compare and use Transformers.

The parts are `polyformer.nn`, `models`, `text`, `data`, `decoding`, `training` and `tasks`; the command is `platform`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
