"""Large queries cannot leave: timeout client."""

from cases import _txqueue

CASE = _txqueue.case("timeout")
