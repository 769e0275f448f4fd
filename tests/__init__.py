"""Tests; their helpers are imported from one another."""
