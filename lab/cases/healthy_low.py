"""No fault."""

from cases import _rag
from runner.case import Accept, Case

CASE = Case(
    name="healthy-low",
    summary="no fault, low load (15 requests/s)",
    rate_rps=15,
    workload=_rag.asks(),
    accept=Accept("healthy"),
)
