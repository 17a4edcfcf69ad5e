"""No fault."""

from cases import _rag
from runner.case import Accept, Case

CASE = Case(
    name="healthy-high",
    summary="no fault, high load (35 requests/s)",
    rate_rps=35,
    workload=_rag.asks(),
    accept=Accept("healthy"),
)
