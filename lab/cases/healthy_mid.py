"""No fault."""

from cases import _rag
from runner.case import Accept, Case

CASE = Case(
    name="healthy-mid",
    summary="no fault, mid load (25 requests/s)",
    rate_rps=25,
    workload=_rag.asks(),
    accept=Accept("healthy"),
)
