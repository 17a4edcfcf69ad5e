"""Every process has a record and a ring of its own: after fork, spawn and exec, and what it wrote outlives it."""
from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.reduction
import os
import subprocess
import sys
import textwrap
import threading
import time
import unittest

from tailspan import _context as ctx

ctx.install_loop()

from ring import NO_SPAN, Recording, Span, tid  # noqa: E402


def work(ready: int, go: int) -> None:
    """In a child: says hello, waits for the reader, then does a little of everything."""
    problems = []
    if ctx.published() is not None:
        problems.append("the child started with its parent's span")
    ctx.install_loop()
    os.write(ready, b"x")
    os.read(go, 1)

    async def main() -> None:
        with Span("child") as span:
            await asyncio.sleep(0.005)
            await asyncio.to_thread(time.sleep, 0.002)
            if ctx.published() != span.cell.span_id:
                problems.append("the wrong span")

    asyncio.run(main())
    os.write(ready, b"!" if problems else b"x")


class Inherited:
    """A descriptor as an argument of a spawned process: arrives as its number there."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[object, tuple[object]]:
        return number_of, (multiprocessing.reduction.DupFd(self.fd),)


def number_of(duplicate) -> int:
    return duplicate.detach()


class ProcessesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.ready, ready = os.pipe()
        go, self.go = os.pipe()
        self.ends = (ready, go)
        for end in self.ends:
            os.set_inheritable(end, True)
        self.addCleanup(lambda: [os.close(fd) for fd in (self.ready, self.go, *self.ends)])

    def check(self, pid: int, wait) -> None:
        self.assertEqual(os.read(self.ready, 1), b"x")
        with Recording(pid) as recording:
            os.write(self.go, b"x")
            self.assertEqual(os.read(self.ready, 1), b"x")
            wait()  # the process is gone before the last records are read
        self.assertEqual(recording.loss, {})
        entered = [c for c in recording.changes if c["kind"] == "enter" and c["step"]]
        self.assertEqual(len(entered), 1)
        span = entered[0]["span"]
        steps = [s for s in recording.steps if s["span"] == span]
        self.assertTrue({"timer", "executor"} <= {s["kind"] for s in recording.steps})
        self.assertGreaterEqual(len(steps), 2)
        self.assertTrue(all(s["pid"] == pid and s["ready"] <= s["start"] for s in recording.steps))
        ids = sorted(s["id"] for s in recording.steps if s["tid"] == pid)
        self.assertEqual(ids, list(range(ids[0], ids[0] + len(ids))))
        for step in recording.steps:
            self.assertTrue(not step["waker"] or step["waker_tid"] or step["waker"] in recording.by_id)
        self.assertIn("test_processes.py:", "".join(recording.sites.values()))

    def test_fork(self) -> None:
        with Span("parent"):
            pid = os.fork()
            if pid == 0:
                try:
                    work(*self.ends)
                finally:
                    os._exit(0)
            self.check(pid, lambda: os.waitpid(pid, 0))
            self.assertIsNotNone(ctx.published())

    def test_multiprocessing_fork_and_spawn(self) -> None:
        for method in ("fork", "spawn"):
            with self.subTest(method), Span("parent"):
                context = multiprocessing.get_context(method)
                args = self.ends if method == "fork" else tuple(map(Inherited, self.ends))
                process = context.Process(target=work, args=args)
                process.start()
                self.check(process.pid, process.join)
                self.assertEqual(process.exitcode, 0)

    def test_exec(self) -> None:
        code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_processes as t; t.work{self.ends}"
        pid = os.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", code])
        self.check(pid, lambda: os.waitpid(pid, 0))
        process = subprocess.Popen([sys.executable, "-c", code], pass_fds=self.ends)
        self.check(process.pid, process.wait)

    def test_fork_inside_a_step_and_a_job(self) -> None:
        """The child goes on in the middle of the parent's step: it must not write into the parent's ring."""
        status, forking = [], Span("forking")

        def child_life() -> None:
            pid = os.fork()
            if pid == 0:
                with Span("in child"):
                    pass
                os._exit(0 if ctx.published() == forking.cell.span_id and ctx.problem() is None else 1)
            status.append(os.waitpid(pid, 0)[1])

        async def main() -> None:
            loop = asyncio.get_running_loop()
            with forking:
                child_life()
                await asyncio.to_thread(child_life)
                pid = os.fork()
                if pid == 0:
                    loop.call_later(0.001, os._exit, 0)
                    await loop.create_future()  # ends the parent's step in the child
                await asyncio.sleep(0.01)
                status.append(os.waitpid(pid, 0)[1])

        with Recording() as recording:
            asyncio.run(main())
        self.assertEqual(status, [0, 0, 0])
        self.assertEqual(recording.loss, {})
        self.assertEqual({s["pid"] for s in recording.steps}, {os.getpid()})
        ids = sorted(s["id"] for s in recording.steps if s["tid"] == tid())
        self.assertEqual(ids, list(range(ids[0], ids[0] + len(ids))))

    def test_a_child_that_returns_from_the_step_it_was_forked_in(self) -> None:
        """As a daemon does. Between the fork and the end of the step the child asks nothing of the package."""
        code = textwrap.dedent("""
            import asyncio, os, signal, sys
            from tailspan import _context as ctx
            ctx.install_loop()
            def fork():
                if pid := os.fork(): children.append(pid)
                else: asyncio._set_running_loop(loop)  # fork has unset it, and 3.14.8 runs no task's step without
            async def main():
                global loop
                loop = asyncio.get_running_loop()
                loop.call_soon(fork)
                await asyncio.sleep(0.02)
                if not children: os._exit(0)
                signal.signal(signal.SIGALRM, lambda *_: fork())
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                await asyncio.sleep(0.03)  # forked by a signal, from within the loop's poll
                if len(children) == 1: os._exit(0)
                for pid in children: print(os.waitpid(pid, 0)[1])
            children = []
            asyncio.run(main())
        """)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.stdout, done.stderr), ("0\n0\n", ""))

    def test_many_threads_come_and_go(self) -> None:
        def life() -> None:
            with Span("thread"):
                pass

        with Recording() as recording:
            for _ in range(20):
                threads = [threading.Thread(target=life) for _ in range(40)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        self.assertEqual(recording.loss, {})
        self.assertEqual(len(recording.changes), 1600)
        self.assertTrue(all((c["kind"] == "leave") == (c["span"] == NO_SPAN) for c in recording.changes))

    def test_more_threads_than_slots_are_counted(self) -> None:
        stop = threading.Event()

        def life() -> None:
            with Span("thread") as span:
                ok.append(ctx.published() == span.cell.span_id)
                stop.wait()

        ok: list[bool] = []
        threading.stack_size(256 * 1024)
        threads = [threading.Thread(target=life) for _ in range(300)]
        with Recording() as recording:
            for thread in threads:
                thread.start()
            while len(ok) < 300:
                time.sleep(0.01)
            stop.set()
            for thread in threads:
                thread.join()
        self.assertTrue(all(ok))  # the record is right where the ring has no room
        self.assertGreaterEqual(recording.loss["loop_ring_slots_full"], 44)


if __name__ == "__main__":
    unittest.main(verbosity=1)
