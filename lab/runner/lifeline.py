"""Children that do not outlive the process that started them, even if it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def tied(nice: int = 0) -> Callable[[], None]:
    """A preexec_fn: SIGTERM when the parent dies; optionally another niceness."""
    parent = os.getpid()

    def prepare() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(1)
        if nice:
            os.nice(nice)

    return prepare
