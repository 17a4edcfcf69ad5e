"""A network namespace behind a veth pair, and the marks by which ours are known.

Everything is named after the process that made it and counted (`tslab-<pid>-<n>`,
`tsl<pid>a<n>`), so a later start can tell what a crashed run left behind and remove
just that.
The link has jumbo frames, so that a query of one vector is one segment.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from . import shell

MTU_BYTES = 9000
COMMENT = "tailspan-lab"
# Device names have at most 15 characters; pids up to seven digits.
_COUNT = itertools.count()
# What the command lines of the lab and of the benchmarks that use it have in common.
_OWNERS = (b"lab", b"bench/")


def owner_alive(pid: int) -> bool:
    """Whether a lab process with this pid still runs (not another's reused pid)."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return any(owner in command for owner in _OWNERS)
    except OSError:
        return False


@dataclass(frozen=True)
class Link:
    """One service's namespace, devices and addresses."""

    netns: str
    host_device: str
    peer_device: str
    host_address: str
    peer_address: str

    @staticmethod
    def create() -> "Link":
        """Makes and raises a link on a /30 nobody else on this host uses."""
        pid, n = os.getpid(), next(_COUNT)
        link = Link(f"tslab-{pid}-{n}", f"tsl{pid}a{n}", f"tsl{pid}b{n}", *_free_pair())
        shell.run("ip", "netns", "add", link.netns)
        shell.run("ip", "link", "add", link.host_device, "mtu", str(MTU_BYTES), "type", "veth",
                  "peer", "name", link.peer_device, "mtu", str(MTU_BYTES), "netns", link.netns)
        shell.run("ip", "address", "add", link.host_address + "/30", "dev", link.host_device)
        link.inside("ip", "address", "add", link.peer_address + "/30", "dev", link.peer_device)
        shell.run("ip", "link", "set", link.host_device, "up")
        link.inside("ip", "link", "set", link.peer_device, "up")
        link.inside("ip", "link", "set", "lo", "up")
        return link

    def inside(self, *command: str) -> str:
        """Runs a command in the namespace."""
        return shell.run("ip", "netns", "exec", self.netns, *command)

    def remove(self) -> None:
        """Link, namespace and what hangs on them; rules on the host's side too."""
        _remove_rules(self.host_device)
        shell.attempt("ip", "link", "delete", self.host_device)
        shell.attempt("ip", "netns", "delete", self.netns)


def _free_pair() -> tuple[str, str]:
    taken = shell.run("ip", "-4", "-o", "address")
    start = os.getpid() % 64
    for n in range(64):
        block = 4 * ((start + n) % 64)
        if f" 10.213.77.{block + 1}/" not in taken:
            return f"10.213.77.{block + 1}", f"10.213.77.{block + 2}"
    raise shell.CommandError("no free address pair in 10.213.77.0/24")


def _remove_rules(device: str) -> None:
    try:
        rules = shell.run("iptables", "-S", "INPUT").splitlines()
    except (shell.CommandError, OSError):
        return
    for rule in rules:
        words = rule.replace('"', "").split()
        if COMMENT in words and device in words:
            shell.attempt("iptables", "-D", *words[1:])


def sweep() -> None:
    """Removes links, namespaces and rules of lab processes that are gone."""
    for line in shell.run("ip", "netns", "list").splitlines():
        found = re.match(r"tslab-(\d+)-(\d+)\b", line)
        if found and not owner_alive(int(found[1])):
            device = f"tsl{found[1]}a{found[2]}"
            shell.attempt("ip", "link", "delete", device)
            shell.attempt("ip", "netns", "delete", f"tslab-{found[1]}-{found[2]}")
            _remove_rules(device)
    for line in shell.run("ip", "-o", "link").splitlines():
        found = re.match(r"\d+: (tsl(\d+)a\d+)[@:]", line)
        if found and not owner_alive(int(found[2])):
            shell.attempt("ip", "link", "delete", found[1])
            _remove_rules(found[1])
