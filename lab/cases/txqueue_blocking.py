"""Large queries cannot leave: blocking client."""

from cases import _txqueue

CASE = _txqueue.case("blocking")
