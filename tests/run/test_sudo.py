"""Under sudo the command and the recording are the caller's."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

from program import HERE, TAILSPAN, needs_root, tailspan

NOBODY = 65534
BY_NOBODY = {"SUDO_UID": str(NOBODY), "SUDO_GID": str(NOBODY), "SUDO_USER": "nobody"}


@needs_root
def test_the_recording_is_given_to_the_caller_but_no_file_behind_a_link() -> None:
    """Under sudo CMD is the caller's own: it must not get another file by putting a link in the recording's place."""
    with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o777)
        victim = pathlib.Path(kept, "victim")
        victim.touch()
        file = pathlib.Path(open_to_all, "r.duckdb")
        arguments = ("run", "--no-explain", "--no-probes", "--out", file, "--", "sh", "-c")
        environment = os.environ | {"SUDO_UID": "65534", "SUDO_GID": "65534"}
        assert tailspan(*arguments, "true", env=environment, cwd="/").returncode == 0
        assert file.stat().st_uid == 65534
        file.unlink()
        tailspan(*arguments, f"mv {file} {file}.mine && ln -s {victim} {file}", env=environment, cwd="/")
        assert file.is_symlink() and victim.stat().st_uid == 0


@needs_root
def test_under_sudo_the_command_runs_as_the_caller(tmp_path: pathlib.Path) -> None:
    import pwd
    user = pwd.getpwnam("nobody")
    environment = dict(os.environ, SUDO_UID=str(user.pw_uid), SUDO_GID=str(user.pw_gid), SUDO_USER="nobody")
    arguments = [TAILSPAN, "run", "--out", str(tmp_path / "r.duckdb"), "--no-explain", "--", "id", "-un"]
    result = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=60)
    assert result.stdout == "nobody\n"
    assert (tmp_path / "r.duckdb").stat().st_uid == user.pw_uid
    kept = tailspan("run", "--out", tmp_path / "k.duckdb", "--no-explain", "--as-root", "--", "id", "-un", env=environment)
    assert kept.stdout == "root\n"


@needs_root
def test_what_a_killed_recorder_leaves_is_the_callers() -> None:
    """The log beside the recording, too: the caller has to fold it in, and may want to remove it."""
    with tempfile.TemporaryDirectory() as open_to_all, tempfile.TemporaryDirectory() as temporary:
        os.chmod(open_to_all, 0o1777)
        os.chmod(temporary, 0o1777)
        file = pathlib.Path(open_to_all, "r.duckdb")
        command = [TAILSPAN, "run", "--no-probes", "--out", str(file), "--", "sh", "-c", "echo ready; read line"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=os.environ | BY_NOBODY | {"TMPDIR": temporary}) as process:
            assert process.stdin and process.stdout
            assert process.stdout.readline() == "ready\n"
            process.kill()
            process.wait()
            process.stdin.write("\n")
        left = [*pathlib.Path(open_to_all).iterdir(), *pathlib.Path(temporary).iterdir()]
        assert {path.name for path in left} >= {"r.duckdb", "r.duckdb.wal"}
        assert {path.name: path.stat().st_uid for path in left} == {path.name: NOBODY for path in left}


@needs_root
def test_a_recording_behind_a_link_is_neither_read_nor_written() -> None:
    """The command puts a link to root's own recording in the place of its own: the answer must not be about that one."""
    with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o777)
        secret = pathlib.Path(kept, "secret.duckdb")
        script = ("import os, sys; sys.path.insert(0, %r)\nfrom program import post_spans\n"
                  "post_spans(int(os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'].rsplit(':', 1)[1]), 300)" % str(HERE))
        tailspan("run", "--no-probes", "--no-explain", "--out", secret, "--", sys.executable, "-c", script)
        assert "`op`" in tailspan("explain", secret).stdout
        before = secret.read_bytes()
        file = pathlib.Path(open_to_all, "r.duckdb")
        swap = f"mv {file} {file}.mine && ln -s {secret} {file}"
        result = tailspan("run", "--no-probes", "--out", file, "--", "sh", "-c", swap, env=os.environ | BY_NOBODY, cwd="/")
        assert file.is_symlink()
        assert result.stdout == "" and "Permission denied" in result.stderr
        assert secret.read_bytes() == before


@needs_root
def test_where_the_caller_may_not_write_the_recording_is_given_to_the_caller(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    result = tailspan("run", "--no-probes", "--no-explain", "--out", tmp_path / "r.duckdb", "--", "id", "-u",
                      env=os.environ | BY_NOBODY, cwd="/")
    assert result.returncode == 0 and result.stdout == f"{NOBODY}\n", result.stderr
    assert [path.stat().st_uid for path in tmp_path.iterdir()] == [NOBODY]
