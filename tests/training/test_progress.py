"""A long evaluation gives a sign of life where there is no bar."""

import pytest

from polyformer.training import Meter, progress


def test_an_evaluation_says_where_it_is_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = iter(range(0, 1000, 12)), []
    monkeypatch.setattr(progress.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: False, raising=False)
    monkeypatch.setattr(progress.log, "info", lambda text, *given: said.append(text % given))
    meter = Meter()
    for batch in range(8):
        meter._show_evaluation("validating", batch, [2000])
    assert said == ["validating, batch 4 of 2,000", "validating, batch 7 of 2,000"]
