"""Now and then the mapped index is evicted from memory, and its disk is slow."""

from __future__ import annotations

from typing import Any

from cases import _rag
from faults.cold_index import ColdIndex
from runner import truth
from runner.case import Accept, Case, Row

SEARCH_MS_MIN = 20.0


def faulted(row: Row, rows: list[Row], evidence: dict[str, Any]) -> bool:
    """Its search took major page faults, by the thread's own count."""
    search = truth.step(row, "index_search")
    return bool(search and search.get("major_faults")) and truth.step_ms(row, "index_search") >= SEARCH_MS_MIN


CASE = Case(
    name="coldindex",
    summary="the memory-mapped index is evicted every 10 s and its disk is slow",
    rate_rps=25,
    workload=_rag.asks(distinct_questions=12),
    accept=Accept(
        "fault", causes=("page_fault",), spans=("index_search",), blames=(("file", "archive.ivf"),)
    ),
    fault=lambda: ColdIndex("archive.ivf", read_bytes_per_s=9_000_000, period_s=10.0),
    hit=faulted,
    hit_share=(0.03, 0.10),
)
