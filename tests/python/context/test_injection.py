"""The package starts itself in every way a Python service is started, and stays out of the way when it cannot."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import injection  # noqa: E402
import table_e  # noqa: E402

SPAN = """
import published
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
if not isinstance(trace.get_tracer_provider(), TracerProvider):
    trace.set_tracer_provider(TracerProvider())
def check():
    with trace.get_tracer("t").start_as_current_span("s") as span:
        assert published.span_id() == span.get_span_context().span_id.to_bytes(8, "big")
    assert published.span_id() is None
"""


def right(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def test_plain_process(tmp_path: Path) -> None:
    right(injection.run(SPAN + "check()", injection.environment(tmp_path)))
    (status,) = injection.statuses(tmp_path).values()
    assert status["context"]["on"] and status["hooks"]["otel_context"]["on"]
    assert status["loop"]["ring"] is True


def test_unused_libraries_load_nothing(tmp_path: Path) -> None:
    code = "import sys, json; print('tailspan._context' in sys.modules, 'asyncio' in sys.modules)"
    assert right(injection.run(code, injection.environment(tmp_path))) == "False False\n"
    assert injection.statuses(tmp_path) == {}


def test_hands_over_to_the_next_sitecustomize(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("marker = 'theirs'\n")
    env = injection.environment(tmp_path)
    env["PYTHONPATH"] += f":{theirs}"
    code = "import sitecustomize, sys; print(sitecustomize.marker, 'tailspan.hooks' in sys.modules)"
    assert right(injection.run(code, env)) == "theirs True\n"


CHAINING = """
import os, sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
print("tool")
here = os.path.dirname(os.path.abspath(__file__))
spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if entry != here])
module = module_from_spec(spec)
sys.modules["sitecustomize"] = module
spec.loader.exec_module(module)
"""


@pytest.mark.parametrize("order", ["tool ours theirs", "ours tool theirs", "ours theirs tool", "ours ours tool theirs"])
def test_another_tool_that_hands_over_too(tmp_path: Path, order: str) -> None:
    """Its sitecustomize takes the first one on the path that is not its own, without taking itself off the path: as
    newrelic-admin's does. Each runs once, as without us."""
    for name, code in (("tool", CHAINING), ("theirs", "print('theirs')\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(code)
    env = injection.environment(tmp_path / "status")
    ours = env["PYTHONPATH"]
    env["PYTHONPATH"] = ":".join(ours if name == "ours" else str(tmp_path / name) for name in order.split())
    done = injection.run("import sys; print('tailspan.hooks' in sys.modules)", env)
    expected = "theirs\nTrue\n" if order == "ours theirs tool" else "tool\ntheirs\nTrue\n"
    assert right(done) == expected


def test_a_start_brings_few_modules(tmp_path: Path) -> None:
    """Each Python process of a recorded program pays for it; what is there already hides the application's own."""
    code = "import sys; print(*sorted(name.split('.')[0] for name in sys.modules))"
    env = injection.environment(tmp_path)
    told = set(right(injection.run(code, env)).split())
    stock = set(right(injection.run(code, env | {"PYTHONPATH": ""})).split())
    assert not told & {"json", "inspect", "dis", "ast", "tokenize", "re"} - stock, sorted(told - stock)


def test_children_of_a_process_without_hooks_say_nothing(tmp_path: Path) -> None:
    code = "import os\npid = os.fork()\nif pid: assert os.waitpid(pid, 0)[1] == 0"
    right(injection.run(code, injection.environment(tmp_path)))
    assert injection.statuses(tmp_path) == {}


TRIO = SPAN + """
import trio
SPANS = trace.get_tracer("t")
def current(span): return published.span_id() == span.get_span_context().span_id.to_bytes(8, "big")
async def traced(i):
    with SPANS.start_as_current_span("s") as span:
        for _ in range(20):
            await trio.sleep(0.0005 * (i % 3))
            assert current(span)
            assert await trio.to_thread.run_sync(int, 3) == 3
            assert current(span)
async def without():
    for _ in range(20):
        await trio.sleep(0.0003)
        assert published.span_id() is None
async def main():
    async with trio.open_nursery() as nursery:
        for i in range(10): nursery.start_soon(traced, i)
        nursery.start_soon(without)
class Seen(trio.abc.Instrument):
    steps = 0
    def before_task_step(self, task): Seen.steps += 1
trio.run(main, instruments=[Seen()])
assert Seen.steps > 200 and published.span_id() is None
import anyio
anyio.run(main, backend="trio")
print("right")
"""


def test_trio(tmp_path: Path) -> None:
    pytest.importorskip("trio")
    assert right(injection.run(TRIO, injection.environment(tmp_path))) == "right\n"
    (status,) = injection.statuses(tmp_path).values()
    assert status["hooks"]["trio"] == {"on": True, "reason": "", "errors": 0}


GREENLETS = SPAN + """
import contextvars, greenlet, sys
SPANS = trace.get_tracer("t")
def current(span): return published.span_id() == span.get_span_context().span_id.to_bytes(8, "big")
def traced():
    with SPANS.start_as_current_span("s") as span:
        for _ in range(20):
            main.switch()
            assert current(span)
def without():
    for _ in range(20):
        main.switch()
        assert published.span_id() is None
main = greenlet.getcurrent()
own = [greenlet.greenlet(work) for work in (traced, without, traced)]
for one in own: one.gr_context = contextvars.Context()
with SPANS.start_as_current_span("main") as span:
    while not all(one.dead for one in own):
        for one in own:
            if not one.dead: one.switch()
            assert current(span)
def fail(): raise KeyError("x")
try: greenlet.greenlet(fail).switch()
except KeyError: pass
check()
print("right")
"""


def test_greenlets(tmp_path: Path) -> None:
    pytest.importorskip("greenlet")
    assert right(injection.run(GREENLETS, injection.environment(tmp_path))) == "right\n"
    (status,) = injection.statuses(tmp_path).values()
    assert status["hooks"]["greenlet"]["on"]


def test_system_interpreter_keeps_its_own_sitecustomize(tmp_path: Path) -> None:
    code = "import sitecustomize, sys; print(sitecustomize.__file__, 'tailspan.hooks' in sys.modules)"
    bare = subprocess.run(
        ["/usr/bin/python3", "-c", "import sitecustomize; print(sitecustomize.__file__)"],
        capture_output=True,
        text=True,
    )
    if bare.returncode:
        pytest.skip("this system has no sitecustomize of its own")
    told = right(injection.run(code, injection.environment(tmp_path), "/usr/bin/python3"))
    assert told == f"{bare.stdout.strip()} True\n"


def test_under_opentelemetry_instrument(tmp_path: Path) -> None:
    env = injection.environment(
        tmp_path, OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="none", OTEL_LOGS_EXPORTER="none"
    )
    done = injection.run(SPAN + "check(); print('right')", env, "opentelemetry-instrument", sys.executable)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path: Path, how: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        SPAN
        + f"""
import multiprocessing
if __name__ == "__main__":
    check()
    child = multiprocessing.get_context({how!r}).Process(target=check)
    with trace.get_tracer("t").start_as_current_span("parent"):
        parent = published.span_id()
        child.start(); child.join()
        assert published.span_id() == parent
    assert child.exitcode == 0
"""
        if how != "fork"
        else SPAN
        + """
import os
check()
with trace.get_tracer("t").start_as_current_span("parent"):
    pid = os.fork()
    if pid == 0:
        inherited = published.span_id()
        with trace.get_tracer("t").start_as_current_span("child") as span:
            own = published.span_id() == span.get_span_context().span_id.to_bytes(8, "big")
        os._exit(0 if inherited is None and own else 1)
    assert os.waitpid(pid, 0)[1] == 0
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)], env=injection.environment(tmp_path), capture_output=True, text=True, timeout=60
    )
    right(done)
    assert len(injection.statuses(tmp_path)) >= 2


def test_exec_starts_anew(tmp_path: Path) -> None:
    code = SPAN + "check()\nimport os, sys\nos.execv(sys.executable, [sys.executable, '-c', NEXT])"
    code = f"NEXT = {(SPAN + 'check(); print(1)')!r}\n" + code
    assert right(injection.run(code, injection.environment(tmp_path))) == "1\n"


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


SERVERS = {
    "uvicorn": ["uvicorn", "app:app", "--loop", "asyncio"],
    "uvicorn-uvloop": ["uvicorn", "app:app", "--loop", "uvloop"],
    "uvicorn-workers": ["uvicorn", "app:app", "--workers", "2"],
    "gunicorn": ["gunicorn", "app:app", "-w", "2", "-k", "uvicorn.workers.UvicornWorker"],
    "gunicorn-preload": ["gunicorn", "app:app", "--preload", "-w", "2", "-k", "uvicorn.workers.UvicornWorker"],
    "instrumented": ["opentelemetry-instrument", "uvicorn", "app:app"],
}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    port = free_port()
    command = SERVERS[request.param]
    where = ["-b", f"127.0.0.1:{port}"] if command[0] == "gunicorn" else ["--port", str(port)]
    env = injection.environment(
        tmp_path, OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="none", OTEL_LOGS_EXPORTER="none"
    )
    tool = shutil.which(command[0], path=env["PATH"])
    if tool is None:
        pytest.skip(f"{command[0]} is not installed")
    running = subprocess.Popen(
        [tool, *command[1:], *where],
        env=env,
        cwd=injection.HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield port
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def ask(port: int, path: str) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_servers(server: int) -> None:
    for path in ("/sync", "/async", "/thread") * 10:
        answer = ask(server, path)
        assert answer["inside"] == answer["span"], path
        assert answer["after"] != answer["span"], path


def test_without_a_build_the_application_notices_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(table_e.python_root(), root, ignore=shutil.ignore_patterns("*.so", "native"))
    code = "import asyncio, concurrent.futures.thread; print('fine')"
    assert right(injection.run(code, injection.environment(tmp_path, root))) == "fine\n"
    (status,) = injection.statuses(tmp_path).values()
    assert not status["context"]["on"] and "tailspan._context" in status["context"]["reason"]
    assert status["hooks"] == {}


def test_free_threaded_builds_are_refused_politely(tmp_path: Path) -> None:
    """There the extension's file has another name, so it is not found: as without a build, but for the reason."""
    root = tmp_path / "root"
    shutil.copytree(table_e.python_root(), root, ignore=shutil.ignore_patterns("*.so", "native"))
    code = "import sys; sys.version = '3.14.0 free-threading build'; import asyncio; print('fine')"
    assert right(injection.run(code, injection.environment(tmp_path, root))) == "fine\n"
    (status,) = injection.statuses(tmp_path).values()
    assert status["context"] == {"on": False, "reason": "free-threaded builds of Python are not supported"}


SUBINTERPRETER = """
import asyncio, sys
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
assert "tailspan._context" in sys.modules
CODE = '''
import asyncio, sys
import concurrent.futures.thread
async def work(): return await asyncio.to_thread(int, 3)
assert asyncio.run(work()) == 3
assert "tailspan._context" not in sys.modules
assert type(asyncio.Handle.__init__).__name__ == "function"
'''
how = {"isolated": False} if sys.version_info < (3, 12) else {}  # isolated ones had no threads
for _ in range(2):
    assert not interpreters.run_string(interpreters.create(**how), CODE)
"""

LAST = "check(); print('right', flush=True); import os; os._exit(0)"  # 3.12 crashes when it ends them, without us too


def test_subinterpreters_are_left_alone(tmp_path: Path) -> None:
    told = right(injection.run(SUBINTERPRETER + SPAN + LAST, injection.environment(tmp_path)))
    assert told == "right\n"
    (status,) = injection.statuses(tmp_path).values()
    assert status["context"]["on"] and status["loop"]["ring"] is True and status["hooks"]["asyncio"]["on"]


def test_a_broken_package_is_silent(tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(table_e.python_root(), root, ignore=shutil.ignore_patterns("native"))
    (root / "tailspan" / "hooks" / "guard.py").write_text("raise RuntimeError('broken')\n")
    assert right(injection.run("import asyncio; print('fine')", injection.environment(tmp_path, root))) == "fine\n"
    (status,) = injection.statuses(tmp_path).values()
    assert "broken" in status["context"]["reason"]


def test_unknown_insides_turn_a_hook_off(tmp_path: Path) -> None:
    stub = tmp_path / "stub" / "anyio"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text("")
    (stub / "to_thread.py").write_text("def run_sync(work): return work\n")
    env = injection.environment(tmp_path)
    env["PYTHONPATH"] = f"{env['PYTHONPATH']}:{tmp_path / 'stub'}"
    code = "import anyio.to_thread as t; print(t.__spec__.loader.__class__.__name__, t.run_sync(1))"
    env["PYTHONPATH"] = f"{tmp_path / 'stub'}:{env['PYTHONPATH']}"
    assert right(injection.run(code, env)) == "SourceFileLoader 1\n"
    (status,) = injection.statuses(tmp_path).values()
    assert not status["hooks"]["anyio_threads"]["on"]
    assert "work" in status["hooks"]["anyio_threads"]["reason"]


ERRORS = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from langchain_core.runnables import RunnableLambda
import tailspan.hooks.otel_context as ours, tailspan.runs as runs
def broken(*_): raise RuntimeError("ours")
ours.enter = ours.current_cell = runs.current_cell = runs.Cell = broken
trace.set_tracer_provider(TracerProvider())
for _ in range(100):
    with trace.get_tracer("t").start_as_current_span("s"):
        assert RunnableLambda(lambda x: x + 1).invoke(1) == 2
        assert list(RunnableLambda(lambda x: x + 1).stream(1)) == [2]
from tailspan import hooks
state = hooks.status()["otel_context"]
print(state["on"], state["errors"], state["reason"])
"""


@pytest.mark.skipif(not table_e.HAS_LANGCHAIN, reason="no LangChain for this Python")
def test_our_errors_never_reach_the_application(tmp_path: Path) -> None:
    told = right(injection.run(ERRORS, injection.environment(tmp_path)))
    assert told == "False 20 off after 20 errors: RuntimeError: ours\n"
