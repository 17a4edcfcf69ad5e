"""A mapped file is evicted from memory and its disk is slow."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from pathlib import Path

from runner.case import Surroundings, WindowFault
from runner.disk import DiskLimit

_PROCESS_MADVISE = 440
_MADV_PAGEOUT = 21
_RANGE_BYTES_MAX = 64 << 20


class _Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class ColdIndex(WindowFault):
    """Each window begins with the eviction; the disk stays slow throughout, which
    costs nothing while the file is in memory."""

    def __init__(self, file: str, read_bytes_per_s: int, period_s: float) -> None:
        super().__init__(period_s, length_s=0.0)
        self._file, self._rate = file, read_bytes_per_s
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._limit: DiskLimit | None = None
        self._path = Path()
        self._pid = 0
        self.evidence["resident_after_eviction"] = []

    def start(self, around: Surroundings) -> None:
        self._path = around.data / self._file
        self._pid = around.pids["app"]
        self._limit = DiskLimit(self._rate, self._path)
        self._limit.hold(self._pid)
        self._limit.on()
        super().start(around)

    def on(self) -> None:
        pidfd = os.pidfd_open(self._pid)
        try:
            for start, length in _mappings(self._pid, self._path):
                self._page_out(pidfd, start, length)
        finally:
            os.close(pidfd)
        with self._path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self.evidence["resident_after_eviction"].append(round(self._resident(file.fileno()), 4))

    def off(self) -> None:
        """The reads themselves bring the file back."""

    def _page_out(self, pidfd: int, start: int, length: int) -> None:
        """MADV_DONTNEED of another process is not to be had; this is, and it also
        takes the pages out of the page cache."""
        for offset in range(0, length, _RANGE_BYTES_MAX):
            part = _Iovec(start + offset, min(_RANGE_BYTES_MAX, length - offset))
            done = self._libc.syscall(
                ctypes.c_long(_PROCESS_MADVISE), ctypes.c_int(pidfd), ctypes.byref(part),
                ctypes.c_size_t(1), ctypes.c_int(_MADV_PAGEOUT), ctypes.c_uint(0),
            )
            if done < 0:
                raise OSError(ctypes.get_errno(), "process_madvise")

    def _resident(self, fd: int) -> float:
        """Share of the file that is in memory."""
        size = os.fstat(fd).st_size
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        vector = (ctypes.c_ubyte * pages)()
        self._libc.mmap.restype = ctypes.c_void_p
        view = ctypes.c_void_p(
            self._libc.mmap(
                None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0)
            )
        )
        done = self._libc.mincore(view, ctypes.c_size_t(size), vector)
        self._libc.munmap(view, ctypes.c_size_t(size))
        if done != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(v & 1 for v in vector) / pages

    def stop(self) -> None:
        super().stop()
        if self._limit is not None:
            self._limit.off()
            self._limit = None


def _mappings(pid: int, path: Path) -> list[tuple[int, int]]:
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) .* (/.*)$", line)
        if match and match[3] == str(path.resolve()):
            start = int(match[1], 16)
            found.append((start, int(match[2], 16) - start))
    if not found:
        raise OSError(0, f"process {pid} does not map {path}")
    return found
