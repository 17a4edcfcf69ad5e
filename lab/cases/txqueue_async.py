"""Large queries cannot leave: async client."""

from cases import _txqueue

CASE = _txqueue.case("async")
