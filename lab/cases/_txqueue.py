"""The three cases of a full transmit queue differ in the client's way to wait."""

from __future__ import annotations

from typing import Any

from cases import _rag
from faults.full_queue import FullQueue
from runner import truth
from runner.case import Accept, Case, Row

OVERLAP_MS_MIN = 20.0
# So many vectors make a query of about 160 KB.
LIKE = 20


def queried_in_a_window(row: Row, rows: list[Row], evidence: dict[str, Any]) -> bool:
    """Its query was under way while the link was slow."""
    query = truth.step(row, "chroma_query")
    return query is not None and any(
        truth.overlap_ms(query, start, end) >= OVERLAP_MS_MIN for start, end in evidence["windows"]
    )


def case(client: str) -> Case:
    """`client` as chroma_client.py names it."""
    return Case(
        name=f"txqueue-{client}",
        summary=f"the link's transmit queue fills, large queries cannot leave; {client} client",
        rate_rps=20,
        workload=_rag.asks(like=LIKE),
        accept=Accept(
            "fault", causes=("net_send",), spans=("chroma_query",),
            blames=(*_rag.CHROMA, ("device", "tsl")),
        ),
        env={"LAB_CHROMA_CLIENT": client, "LAB_CHROMA_SNDBUF_BYTES": "32768"},
        fault=lambda: FullQueue("2mbit", period_s=4.5, length_s=0.3),
        hit=queried_in_a_window,
        hit_share=(0.03, 0.10),
    )
