"""Now and then somebody uploads a document. It is chunked in a worker thread by
pure Python, which holds the GIL: the loop and every request's retrieval wait for
it. Uploads are an operation of their own, POST /upload."""

from __future__ import annotations

from typing import Any

from cases import _rag
from runner import truth
from runner.case import Accept, Case, Row

OVERLAP_MS_MIN = 20.0


def waited_for_a_chunker(row: Row, rows: list[Row], evidence: dict[str, Any]) -> bool:
    """Served while another request's document was being chunked."""
    return any(
        other is not row
        and (chunk := truth.step(other, "chunk")) is not None
        and truth.overlap_ms(row["service"], chunk["start_mono_ns"], chunk["end_mono_ns"]) >= OVERLAP_MS_MIN
        for other in rows
    )


CASE = Case(
    name="gil",
    summary="uploads are chunked by pure Python in a worker thread; all others wait for the GIL",
    rate_rps=20,
    workload=_rag.asks(upload_one_in=200, upload_bytes=500_000),
    accept=Accept("fault", causes=("gil",), spans=_rag.SPANS, blames=(("span", "chunk"),)),
    hit=waited_for_a_chunker,
    hit_share=(0.03, 0.10),
)
