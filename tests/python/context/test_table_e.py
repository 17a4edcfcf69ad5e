"""The quick form of table (e): about 50 steps a row."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import table_e  # noqa: E402

QUICK_STEPS = 50


@pytest.mark.parametrize(("row", "tracer"), table_e.cells(None, None))
def test_right_span(row: str, tracer: str) -> None:
    result = table_e.measure(row, tracer, QUICK_STEPS)
    assert result["steps"] >= QUICK_STEPS
    assert result["share"] >= table_e.BAR, result["wrong"]
