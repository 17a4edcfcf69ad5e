"""Slowing a process's disk reads by cgroup, on cgroup v1 (blkio) and v2 (io)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from . import network

_V1 = Path("/sys/fs/cgroup/blkio")
_V2_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
PREFIX = "tailspan-lab-"


class DiskLimit:
    """A cgroup of our own; a process that is moved into it stays until it ends."""

    def __init__(self, read_bytes_per_s: int, path_on_disk: Path) -> None:
        self._rate = read_bytes_per_s
        self._device = _whole_disk(path_on_disk)
        self._group, self._v2 = _make_group()

    def hold(self, pid: int) -> None:
        """Moves the process in; its reads are limited while on() holds."""
        (self._group / "cgroup.procs").write_text(str(pid))

    def on(self) -> None:
        """Limits reads."""
        self._write(f"rbps={self._rate}" if self._v2 else str(self._rate))

    def off(self) -> None:
        """Lifts the limit."""
        self._write("rbps=max" if self._v2 else "0")

    def _write(self, limit: str) -> None:
        name = "io.max" if self._v2 else "blkio.throttle.read_bps_device"
        (self._group / name).write_text(f"{self._device} {limit}\n")


def _whole_disk(path: Path) -> str:
    """major:minor of the disk under the file; limits do not go on partitions."""
    number = os.stat(path).st_dev
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not node.exists():
        raise RuntimeError(f"{path} is on no block device, its reads cannot be limited")
    if (node / "partition").exists():
        node = node.resolve().parent
    return (node / "dev").read_text().strip()


def _make_group() -> tuple[Path, bool]:
    name = f"{PREFIX}{os.getpid()}"
    if (_V1 / "blkio.throttle.read_bps_device").exists():
        (_V1 / name).mkdir(exist_ok=True)
        return _V1 / name, False
    for root in _V2_ROOTS:
        control = root / "cgroup.subtree_control"
        if control.exists() and "io" in (root / "cgroup.controllers").read_text().split():
            control.write_text("+io")
            (root / name).mkdir(exist_ok=True)
            return root / name, True
    raise RuntimeError("no cgroup controller for block I/O: mount blkio (v1) or enable io (v2)")


def sweep_own() -> None:
    """Removes this process's group; the limited processes must have ended."""
    for root in (_V1, *_V2_ROOTS):
        group = root / f"{PREFIX}{os.getpid()}"
        if group.exists():
            group.rmdir()


def sweep() -> None:
    """Removes the groups of lab processes that are gone."""
    for root in (_V1, *_V2_ROOTS):
        for group in root.glob(PREFIX + "*"):
            found = re.fullmatch(PREFIX + r"(\d+)", group.name)
            if found and not network.owner_alive(int(found[1])):
                try:
                    group.rmdir()
                except OSError:
                    pass
