"""How scripts call `tailspan`: exit statuses, wrong usage, and what is in the way."""

from __future__ import annotations

import pathlib
import socket

import pytest
from program import one_error_line, run, tailspan


@pytest.mark.parametrize("command, status", [(["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], 143)])
def test_exit_status_is_the_commands_own(tmp_path: pathlib.Path, command: list[str], status: int) -> None:
    assert run(tmp_path, *command).returncode == status


def test_a_command_that_does_not_exist(tmp_path: pathlib.Path) -> None:
    result = run(tmp_path, "no-such-command-anywhere")
    assert result.returncode == 127
    one_error_line(result, "no-such-command-anywhere", "not found")
    assert not (tmp_path / "r.duckdb").exists()


def test_a_command_that_cannot_be_executed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_text("not a program")
    result = run(tmp_path, tmp_path / "data")
    assert result.returncode == 126
    one_error_line(result, "not executable")


@pytest.mark.parametrize("arguments", [[], ["run"], ["explain"], ["run", "--quantile", "2", "--", "true"], ["nonsense"],
                                       ["run", "--pid", "1", "--", "true"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert tailspan(*arguments).returncode == 2


def test_help_and_version() -> None:
    assert "tailspan 0" in tailspan("--version").stdout
    for command in ("run", "explain", "doctor"):
        result = tailspan(command, "--help")
        assert result.returncode == 0 and "--" in result.stdout


def test_a_port_that_is_taken(tmp_path: pathlib.Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run(tmp_path, "true", options=("--port", taken.getsockname()[1]))
    assert result.returncode == 125
    one_error_line(result, "taken")
    assert not list(tmp_path.iterdir()), "in the way of the next try"


def test_a_file_that_is_in_the_way(tmp_path: pathlib.Path) -> None:
    (tmp_path / "r.duckdb").write_text("mine")
    result = run(tmp_path, "true")
    assert result.returncode == 125
    assert (tmp_path / "r.duckdb").read_text() == "mine"


@pytest.mark.parametrize("content", [None, "no database"])
def test_explain_of_what_is_no_recording(tmp_path: pathlib.Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "x.duckdb").write_text(content)
    result = tailspan("explain", tmp_path / "x.duckdb")
    assert result.returncode == 1
    one_error_line(result, "x.duckdb")
