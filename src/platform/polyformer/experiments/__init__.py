"""Experiments: what runs leave behind, compared and drawn. It reads files and arrays, and knows no model."""

__all__: list[str] = []
