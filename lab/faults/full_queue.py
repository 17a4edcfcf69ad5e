"""The link's transmit queue is full: large queries cannot leave."""

from __future__ import annotations

from runner import shell
from runner.case import Surroundings, WindowFault


class FullQueue(WindowFault):
    """A token bucket on the app's side of the link, fast outside the windows and
    slow inside. Its queue holds more than the senders can have under way, so
    nothing is dropped: they wait."""

    FAST = "10gbit"
    BURST = "20kb"
    LIMIT = "16mb"

    def __init__(self, rate: str, period_s: float, length_s: float) -> None:
        super().__init__(period_s, length_s)
        self._rate = rate
        self._device: str | None = None

    def _bucket(self, verb: str, rate: str) -> None:
        shell.run("tc", "qdisc", verb, "dev", str(self._device), "root", "tbf", "rate", rate,
                  "burst", self.BURST, "limit", self.LIMIT)

    def start(self, around: Surroundings) -> None:
        self._device = around.link.host_device
        self._bucket("add", self.FAST)
        super().start(around)

    def on(self) -> None:
        self._bucket("change", self._rate)

    def off(self) -> None:
        self._bucket("change", self.FAST)

    def stop(self) -> None:
        super().stop()
        if self._device is not None:
            self.evidence["queue"] = shell.run("tc", "-s", "qdisc", "show", "dev", self._device)
            shell.run("tc", "qdisc", "del", "dev", self._device, "root")
            self._device = None
