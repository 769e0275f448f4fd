"""Tests of the bundled tasks."""
