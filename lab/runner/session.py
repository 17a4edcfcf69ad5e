"""One run of one case: service up, load and fault on, service down, truth told."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cpu, disk, lifeline, network, paths, services, truth
from .case import Case, Surroundings

READY_TIMEOUT_S = 150.0
STOP_TIMEOUT_S = 90.0
EXPLAIN_TIMEOUT_S = 300.0
SETTLE_S = 1.5
CLIENT_NICE = -5


class RunFailed(RuntimeError):
    """The run says nothing about tailspan: a part of the lab did not work."""


@dataclass(frozen=True)
class Options:
    """How to run, beyond the case. `tailspan` None runs without recording. The
    load begins after `lead_s`. The CPU shares are read each `watch_s`; CPU seconds
    count until `drain_s` after the load."""

    tailspan: str | None
    requests: int | None = None
    tracer: str | None = None
    rate_rps: float | None = None
    keep_bodies: bool = False
    lead_s: float = 2.0
    watch_s: float = 1.0
    drain_s: float = 0.0


@dataclass
class Outcome:
    """`explanation` is None without a recording; `explain_s` is how long it took."""

    folder: Path
    truth: dict[str, Any]
    explanation: dict[str, Any] | None = None
    explain_s: float | None = None


def sweep() -> None:
    """Removes what crashed runs left on this host, and nothing else."""
    network.sweep()
    disk.sweep()


class Session:
    """Holds what one run has started; close() ends it all, in any state."""

    def __init__(self, case: Case, seed: int, options: Options) -> None:
        self._case, self._seed, self._options = case, seed, options
        self._service = services.SERVICES[case.service]
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self.folder = paths.RUNS / f"{case.name}-{stamp}-{os.getpid()}-{seed}"
        self.folder.mkdir(parents=True)
        self._recording = self.folder / "recording.duckdb"
        self._link: network.Link | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []
        self._ready: dict[str, Any] = {}
        self._fault = case.fault()

    def run(self) -> Outcome:
        """The whole run; RunFailed if a part of the lab did not work."""
        self.bring_up()
        self._fault.evidence.update(self.load(self._seed))
        time.sleep(SETTLE_S)
        self.take_down()
        outcome = Outcome(self.folder, self._judge())
        if self._options.tailspan is not None:
            self._explain(outcome)
        return outcome

    def bring_up(self) -> None:
        """The service, ready for its load; nothing of the fault yet."""
        services.preload(self._service)
        self._link = network.Link.create()
        self._ready = self._start_service()

    def load(self, seed: int) -> dict[str, Any]:
        """The case's load and fault, once; the client's rows are in client.json then.
        The result says who used the CPU meanwhile: `cpu` in shares of the machine,
        `cpu_s` in seconds of each part of the run."""
        assert self._server is not None
        plan_path, around = self._plan(seed)
        self._fault.start(around)
        client = subprocess.Popen(
            [sys.executable, str(paths.LAB / "runner/open_loop.py"), str(plan_path),
             str(self.folder / "client.json")],
            preexec_fn=lifeline.tied(CLIENT_NICE),
        )
        self._others.append(client)
        meter = cpu.Meter(self._server.pid, *(o.pid for o in self._others))
        parts = cpu.Parts(self._server.pid, self._ready["pids"]["app"])
        while client.poll() is None:
            usage = meter.read()
            time.sleep(self._options.watch_s)
            if self._server.poll() is not None:
                raise RunFailed(f"the service ended under load, see {self.folder}")
        self._others.remove(client)
        if client.returncode != 0:
            raise RunFailed(f"the client failed ({client.returncode}), see {self.folder}")
        self._fault.stop()
        time.sleep(self._options.drain_s)
        return {"cpu": usage, "cpu_s": parts.read()}

    def _command(self) -> list[str]:
        serve = [sys.executable, str(self._service.folder / "serve"), str(self.folder)]
        if self._options.tailspan is None:
            return serve
        as_root = ["--as-root"] if "SUDO_USER" in os.environ else []
        return [self._options.tailspan, "run", "--out", str(self._recording), "--name",
                self._case.name, "--no-explain", *as_root, "--", *serve]

    def _start_service(self) -> dict[str, Any]:
        assert self._link is not None
        env = dict(self._case.env)
        if self._options.tracer is not None:
            env["LAB_TRACER"] = self._options.tracer
        config = {
            "python": str(paths.VENV_PYTHON), "data": str(self._service.data), "env": env,
            "netns": self._link.netns, "chroma_host": self._link.peer_address,
        }
        (self.folder / "service.json").write_text(json.dumps(config))
        os.mkfifo(self.folder / "stop")
        outside = dict(os.environ)
        if self._options.tailspan is None:
            outside.update(self._start_sink())
        log = (self.folder / "serve.log").open("wb")
        self._server = subprocess.Popen(
            self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=outside,
            cwd=self.folder, preexec_fn=lifeline.tied(),
        )
        path = self.folder / "ready.json"
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not path.exists():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RunFailed(f"the service did not come up, see {self.folder / 'serve.log'}")
            time.sleep(0.1)
        return json.loads(path.read_text())

    def _start_sink(self) -> dict[str, str]:
        """Where spans go when nothing records them."""
        where = self.folder / "sink.url"
        command = [sys.executable, str(paths.LAB / "runner/sink.py"), str(where)]
        if self._options.keep_bodies:
            (self.folder / "bodies").mkdir()
            command.append(str(self.folder / "bodies"))
        self._others.append(subprocess.Popen(command, preexec_fn=lifeline.tied()))
        while not (where.exists() and where.read_text()):
            time.sleep(0.02)
        url = where.read_text()
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "LANGSMITH_ENDPOINT": url}

    def _plan(self, seed: int) -> tuple[Path, Surroundings]:
        assert self._link is not None
        ready = self._ready
        rng = random.Random(f"{self._case.name} {seed}")
        count = self._options.requests or self._case.requests
        rate_rps = self._options.rate_rps or self._case.rate_rps
        requests, at_s = [], 0.0
        for n, request in enumerate(self._case.workload(rng, count)):
            at_s += rng.expovariate(rate_rps)
            requests.append({"id": f"{seed}-{n}", "at_s": at_s, "path": request.path,
                             "body": request.body})
        start_ns = time.monotonic_ns() + int(1e9 * self._options.lead_s)
        plan = {"url": ready["url"], "start_mono_ns": start_ns, "requests": requests}
        path = self.folder / "plan.json"
        path.write_text(json.dumps(plan))
        return path, Surroundings(self._link, ready["pids"], self._service.data, start_ns, at_s)

    def take_down(self) -> None:
        """Ends the service as a user would; RunFailed if it does not end well."""
        assert self._server is not None
        (self.folder / "stop").write_text("stop")
        try:
            status = self._server.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"the service did not end, see {self.folder}") from None
        if status != 0:
            raise RunFailed(f"the service ended with {status}, see {self.folder / 'serve.log'}")

    def _judge(self) -> dict[str, Any]:
        client = self.folder / "client.json"
        rows = truth.join(client, self.folder / "service.jsonl")
        check = json.loads(client.read_text())["client"]
        told = truth.judge(self._case, rows, self._fault.evidence, check)
        (self.folder / "truth.json").write_text(json.dumps(told, indent=1))
        return told

    def _explain(self, outcome: Outcome) -> None:
        command = [str(self._options.tailspan), "explain", str(self._recording), "--format", "json",
                   "--operation", self._case.operation]
        start = time.monotonic()
        done = subprocess.run(command, capture_output=True, timeout=EXPLAIN_TIMEOUT_S)
        outcome.explain_s = round(time.monotonic() - start, 2)
        (self.folder / "explanation.json").write_bytes(done.stdout)
        try:
            outcome.explanation = json.loads(done.stdout)
        except ValueError:
            words = done.stderr.decode(errors="replace").strip()
            raise RunFailed(f"tailspan explain ended with {done.returncode}: {words}") from None

    def answer(self) -> str:
        """tailspan's own words about the recording."""
        command = [str(self._options.tailspan), "explain", str(self._recording), "--operation",
                   self._case.operation]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout

    def close(self, keep_recording: bool) -> None:
        """Ends every process of the run and removes what it changed on the host."""
        try:
            self._fault.stop()
        except (OSError, RuntimeError) as error:
            print(f"lab: healing failed: {error}", file=sys.stderr)
        for process in [*self._others, self._server]:
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
        if self._link is not None:
            self._link.remove()
        disk.sweep_own()
        shutil.rmtree(self.folder / "chroma", ignore_errors=True)
        if not keep_recording:
            for path in self.folder.glob("recording.duckdb*"):
                path.unlink()
