"""The link to Chroma loses packets on arrival, in both directions."""

from __future__ import annotations

from typing import Any

from cases import _rag
from faults.lossy_link import LossyLink
from runner import truth
from runner.case import Accept, Case, Row

# TCP repairs a lost single segment after its minimal timeout of 200 ms.
REPAIR_MS = 180.0


def lost_a_packet(row: Row, rows: list[Row], evidence: dict[str, Any]) -> bool:
    """Its query lasted as long as a repair. Few others do: `evidence` has what
    the kernel dropped in each direction."""
    return truth.step_ms(row, "chroma_query") >= REPAIR_MS


CASE = Case(
    name="retransmit",
    summary="packets between app and Chroma are dropped at the receiver, both ways",
    rate_rps=25,
    workload=_rag.asks(),
    accept=Accept("fault", causes=("retransmit",), spans=("chroma_query",), blames=_rag.CHROMA),
    fault=lambda: LossyLink(0.06),
    hit=lost_a_packet,
    hit_share=(0.03, 0.10),
)
