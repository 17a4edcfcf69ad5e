"""What the recorded command is given: its environment, its descriptors, and a folder for its status."""

from __future__ import annotations

import os
import pathlib
import resource
import sys

import pytest
from program import HERE, query, run, tailspan


def test_the_commands_environment(tmp_path: pathlib.Path) -> None:
    environment = dict(os.environ, http_proxy="http://127.0.0.1:9", NO_PROXY="internal", LANGSMITH_RUNS_ENDPOINTS="{}",
                       TMPDIR=str(tmp_path / "none"))
    environment.pop("no_proxy", None)
    script = ("import os, sys; sys.path.insert(0, %r)\nfrom program import post_spans\n"
              "post_spans(int(os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'].rsplit(':', 1)[1]), 10)\n"
              "print(os.environ['no_proxy'], os.environ['NO_PROXY'], 'LANGSMITH_RUNS_ENDPOINTS' in os.environ)" % str(HERE))
    result = tailspan("run", "--out", tmp_path / "r.duckdb", "--no-explain", "--", sys.executable, "-c", script,
                      env=environment)
    assert result.stdout == "internal,127.0.0.1 internal,127.0.0.1 False\n", result.stderr
    assert query(tmp_path / "r.duckdb", "SELECT count(*) FROM span") == "10"


def test_the_command_has_none_of_tailspans_descriptors(tmp_path: pathlib.Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    result = tailspan("run", "--out", tmp_path / "r.duckdb", "--no-explain", "--", "sh", "-c",
                      "ulimit -n; ls -l /proc/self/fd", preexec_fn=limit)
    assert result.stdout.startswith("300\n"), "raised for tailspan alone"
    assert "socket:" not in result.stdout and ".duckdb" not in result.stdout


def test_what_the_command_leaves_in_its_status_folder_cannot_hold_it_up(tmp_path: pathlib.Path) -> None:
    """A FIFO that nobody writes to, an endless device, what only root may read, and what is no JSON."""
    script = ('cd "$TAILSPAN_STATUS_DIR" && mkfifo a.json && ln -s /dev/zero b.json && ln -s /proc/kmsg c.json && echo { > d.json')
    assert run(tmp_path, "sh", "-c", script).returncode == 0


@pytest.mark.parametrize("asked, answers", [(False, "True False True"), (True, "True True True")])
def test_an_instrumentation_takes_langsmiths_tracing_back_for_its_own_process(tmp_path: pathlib.Path, asked: bool,
                                                                              answers: str) -> None:
    """Only where nobody asked for it; what the process starts may have LangSmith's tracing alone."""
    tell = "import langsmith.utils; print(langsmith.utils.tracing_is_enabled(), flush=True)"
    script = (f"import subprocess, sys; {tell}\nimport openinference.instrumentation.langchain\n{tell}\n"
              f"subprocess.run([sys.executable, '-c', {tell!r}], check=True)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH", "LANGCHAIN"))}
    if asked:
        environment["LANGSMITH_TRACING"] = "true"
    result = tailspan("run", "--out", tmp_path / "r.duckdb", "--no-explain", "--no-probes", "--", sys.executable, "-c", script,
                      env=environment)
    assert result.stdout.split() == answers.split(), result.stderr
