"""Packets between the app and its peer are lost on arrival, both ways."""

from __future__ import annotations

import re

from runner import network, shell
from runner.case import Fault, Surroundings


class LossyLink(Fault):
    """Drops a share of what arrives, in the INPUT of both namespaces: the sender
    believes it sent. (A drop in its own OUTPUT would be told to its TCP.)"""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self._probability = probability
        self._around: Surroundings | None = None

    def _rule(self, device: str) -> list[str]:
        return ["INPUT", "-i", device, "-m", "statistic", "--mode", "random", "--probability",
                str(self._probability), "-m", "comment", "--comment", network.COMMENT, "-j", "DROP"]

    def start(self, around: Surroundings) -> None:
        self._around = around
        shell.run("iptables", "-I", *self._rule(around.link.host_device))
        around.link.inside("iptables", "-I", *self._rule(around.link.peer_device))

    def stop(self) -> None:
        if self._around is None:
            return
        link, self._around = self._around.link, None
        listing = ("iptables", "-L", "INPUT", "-v", "-x", "-n")
        self.evidence["dropped_at_app"] = _dropped(shell.run(*listing), link.host_device)
        self.evidence["dropped_at_peer"] = _dropped(link.inside(*listing), link.peer_device)
        shell.run("iptables", "-D", *self._rule(link.host_device))
        link.inside("iptables", "-D", *self._rule(link.peer_device))


def _dropped(listing: str, device: str) -> int:
    for line in listing.splitlines():
        found = re.match(r"\s*(\d+)\s+\d+\s+DROP\s", line)
        if found and device in line.split():
            return int(found[1])
    raise shell.CommandError(f"no rule for {device} in iptables' list")
