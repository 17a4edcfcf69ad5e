"""With the hooks in, asyncio and thread pools behave as without: same results, same errors and tracebacks, no leaks."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import unittest

PROLOGUE = """
import asyncio, os, sys, time, threading, contextvars, gc, logging, selectors, signal, socket
from concurrent.futures import ThreadPoolExecutor
if os.environ["HOOKS"] == "1":
    from tailspan import _context as ctx
    report = ctx.install_loop()
    assert report["ring"] is (os.environ.get("TAILSPAN_LOOP") is None), report
"""


def run(source: str, hooks: bool, **env: str) -> subprocess.CompletedProcess[str]:
    code = PROLOGUE + textwrap.dedent(source)
    environment = {**os.environ, "HOOKS": str(int(hooks)), "PYTHONHASHSEED": "0", **env}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)


def plain(text: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"0x[0-9a-f]+|when=[0-9.]+|\d+\.\d+ seconds|\[\d+\]|Thread-\d+", "N", text)


class StockBehaviourTest(unittest.TestCase):
    def same(self, source: str, **env: str) -> subprocess.CompletedProcess[str]:
        stock, hooked = run(source, False, **env), run(source, True, **env)
        self.assertEqual(plain(hooked.stderr), plain(stock.stderr))
        self.assertEqual(plain(hooked.stdout), plain(stock.stdout))
        self.assertEqual(hooked.returncode, stock.returncode)
        return hooked

    FAILURES = """
        def bad(x): raise ValueError(x)
        async def task():
            await asyncio.sleep(0)
            raise RuntimeError("in task")
        async def main():
            loop = asyncio.get_running_loop()
            loop.slow_callback_duration = 60  # a busy machine must not add lines
            loop.call_soon(bad, 1)
            loop.call_later(0.001, bad, 2)
            loop.call_soon_threadsafe(bad, 3)
            forgotten = asyncio.create_task(task())
            await asyncio.sleep(0.02)
            del forgotten
            gc.collect()
            a, b = socket.socketpair()
            def read():
                loop.remove_reader(a)
                bad(4)
            loop.add_reader(a, read)
            b.send(b"x")
            await asyncio.sleep(0.001)
            def cancel_self():
                own.cancel()
                raise KeyError("cancelled itself")
            own = loop.call_soon(cancel_self)
            await asyncio.sleep(0.001)
            context = contextvars.copy_context()
            def again(): context.run(loop.call_soon, bad, 5)
            again()
            def busy_context(): loop.call_soon(bad, 6, context=context); loop._run_once()
            context.run(busy_context)
            await asyncio.sleep(0.001)
            try:
                await task()
            except RuntimeError:
                import traceback; traceback.print_exc()
        def handler(loop, context):
            context.pop("handle", None)
            print(sorted(context), context["message"], repr(context.get("exception")))
            loop.default_exception_handler(context)
    """

    def test_errors_and_tracebacks(self) -> None:
        done = self.same(self.FAILURES + "    asyncio.run(main())")
        self.assertIn("ValueError: 5", done.stderr)

    def test_errors_and_tracebacks_in_debug_mode(self) -> None:
        self.same(self.FAILURES + "    asyncio.run(main(), debug=True)")

    def test_exception_handler(self) -> None:
        self.same(self.FAILURES + """
        async def handled():
            asyncio.get_running_loop().set_exception_handler(handler)
            await main()
        asyncio.run(handled())
        """)

    def test_slow_callbacks_are_logged_in_debug_mode(self) -> None:
        done = run("""
        logging.basicConfig()
        async def main(): time.sleep(0.15)
        asyncio.run(main(), debug=True)
        """, True)
        self.assertRegex(done.stderr, r"Executing <(Task|Handle).* took 0\.\d+ seconds")

    def test_handles(self) -> None:
        self.same("""
        async def main():
            loop = asyncio.get_running_loop()
            seen = []
            handle = loop.call_soon(seen.append, 1)
            timer = loop.call_later(0.001, seen.append, 2)
            gone = loop.call_later(10, seen.append, 3)
            gone.cancel(); gone.cancel()
            dropped = loop.call_soon(seen.append, 4)
            dropped.cancel()
            print(handle, timer.when() > 0, gone.cancelled(), dropped, type(handle).__name__)
            print(isinstance(timer, asyncio.TimerHandle), isinstance(handle, asyncio.Handle), issubclass(asyncio.TimerHandle, asyncio.Handle))
            print(timer < gone, timer == timer, hash(timer) == hash(timer), handle == timer)
            made = asyncio.Handle(seen.append, (5,), loop, context=contextvars.copy_context())
            made._run()
            asyncio.TimerHandle(loop.time(), seen.append, (6,), loop)._run()
            for wrong in ((), (1, 2), (1, 2, 3, 4, 5)):
                try: asyncio.Handle(*wrong)
                except TypeError: print("TypeError")
            await asyncio.sleep(0.01)
            print(seen)
        asyncio.run(main())
        """)

    def test_timers_that_were_pending_before_the_hooks(self) -> None:
        done = run("""
        ctx.uninstall_loop()
        loop = asyncio.new_event_loop()
        seen = []
        now = loop.time()
        for i in range(20): loop.call_at(now + 0.001 * (20 - i), seen.append, 20 - i)
        ctx.install_loop()
        for i in range(20): loop.call_at(now + 0.001 * i + 0.0005, seen.append, i + .5)
        loop.call_at(now + 0.05, loop.stop)
        ctx.uninstall_loop()
        for i in range(3): loop.call_at(now + 0.03 + 0.001 * i, seen.append, 30 + i)
        loop.run_forever()
        assert seen == sorted(seen) and len(seen) == 43, seen
        loop.close()
        """, True)
        self.assertEqual(done.stderr, "")

    def test_interrupt_and_exit_leave_the_loop(self) -> None:
        for error in ("KeyboardInterrupt", "SystemExit(7)"):
            self.same(f"""
            def stop(): raise {error}
            async def main():
                asyncio.get_running_loop().call_soon(stop)
                await asyncio.sleep(5)
            asyncio.run(main())
            """)

    def test_signals(self) -> None:
        self.same("""
        async def main():
            loop = asyncio.get_running_loop()
            got = asyncio.Event()
            loop.add_signal_handler(signal.SIGUSR1, got.set)
            for _ in range(3):
                loop.call_later(0.005, os.kill, os.getpid(), signal.SIGUSR1)
                await got.wait()
                got.clear()
            print("three")
        asyncio.run(main())
        """)
        for hooks in (False, True):  # Ctrl-C while it waits in its poll
            process = subprocess.Popen(
                [sys.executable, "-c", PROLOGUE + "print('up', flush=True)\nasyncio.run(asyncio.sleep(30))"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "HOOKS": str(int(hooks))})
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=10)
            self.assertTrue(error.strip().endswith("KeyboardInterrupt"), error)

    def test_selector_outside_a_loop(self) -> None:
        self.same("""
        selector = selectors.EpollSelector()
        a, b = socket.socketpair()
        selector.register(a, selectors.EVENT_READ | selectors.EVENT_WRITE, "data")
        print([(key.data, events) for key, events in selector.select(0)])
        b.send(b"x")
        print([(key.data, events) for key, events in selector.select(timeout=1)])
        selector.unregister(a)
        start = time.monotonic()
        signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        print(selector.select(0.1), time.monotonic() - start >= 0.1)  # goes on after the signal
        for wrong in ("x", 1e300):
            try: selector.select(wrong)
            except (TypeError, OverflowError) as error: print(type(error).__name__)
        many = [socket.socketpair() for _ in range(100)]
        for x, y in many: selector.register(x, selectors.EVENT_READ); y.send(b"x")
        print(len(selector.select(1)))
        selector.close()
        try: selector.select(0)
        except Exception as error: print(type(error).__name__)
        """)

    def test_executors(self) -> None:
        self.same("""
        import traceback
        def bad(): raise ValueError("in job")
        with ThreadPoolExecutor(2) as pool:
            print(pool.submit(pow, 2, 3).result(), list(pool.map(abs, [-1, -2])))
            try: pool.submit(bad).result()
            except ValueError: traceback.print_exc()
            free = threading.Event()
            blocked = [pool.submit(free.wait) for _ in range(2)]
            dropped = pool.submit(print, "never")
            print(dropped.cancel(), dropped.cancelled())
            free.set()
        async def main():
            print(await asyncio.to_thread(pow, 2, 5))
            try: await asyncio.to_thread(bad)
            except ValueError: traceback.print_exc()
        asyncio.run(main())
        """)

    def test_work_items_of_others(self) -> None:
        self.same("""
        import concurrent.futures.thread as module
        class Item(module._WorkItem):  # does not call the stock __init__
            def __init__(self, future, *work):
                self.future = future
                if len(work) == 1: self.task = work[0]
                else: self.fn, self.args, self.kwargs = work
        module._WorkItem, stock = Item, module._WorkItem
        with ThreadPoolExecutor(1) as pool: print(pool.submit(pow, 2, 3).result(5))
        module._WorkItem = stock
        class Proxy:  # of something far away: each attribute costs a call there
            def __call__(self): return 1
            def __getattr__(self, name): print("asked for", name); raise AttributeError(name)
        with ThreadPoolExecutor(1) as pool: print(pool.submit(Proxy()).result(5))
        """)

    def test_a_handles_run_can_be_replaced(self) -> None:
        """As monitors of slow callbacks do: in asyncio timers inherit it."""
        self.same("""
        stock = asyncio.Handle._run
        def counted(self):
            runs.append(type(self).__name__)
            return stock(self)
        runs = []
        asyncio.Handle._run = counted
        async def main():
            loop = asyncio.get_running_loop()
            for how, arguments in ((loop.call_soon, ()), (loop.call_later, (0.001,)), (loop.call_soon_threadsafe, ())):
                done = asyncio.Event()
                del runs[:]
                how(*arguments, done.set)
                await done.wait()
                print(runs)
            del runs[:]
            asyncio.Handle._run = stock
            await asyncio.sleep(0.001)
            print(runs)
        asyncio.run(main())
        """)

    def test_it_is_loaded_once_in_a_process(self) -> None:
        """A program that embeds Python may end its interpreter and begin another: that one is left alone."""
        done = run("""
        import importlib.util as util
        spec = util.spec_from_file_location("again._context", ctx.__file__)
        try: util.module_from_spec(spec)
        except ImportError as error: print(error)
        cell = ctx.Cell(b"t" * 16, b"s" * 8)
        ctx.enter(cell)
        assert ctx.current.get() is cell and ctx.published() == b"s" * 8
        """, True)
        self.assertEqual(done.stderr, "")
        self.assertIn("loaded it already", done.stdout)

    def test_nothing_leaks(self) -> None:
        done = run("""
        import collections
        loop_ids = 0
        async def child(i):
            cell = ctx.Cell(b"t" * 16, (i + 1).to_bytes(8, "big"), None, ctx.current_cell())
            ctx.enter(cell)
            try:
                await asyncio.sleep(0 if i % 3 else 0.0001)
                if i % 7 == 0: raise ValueError
                if i % 50 == 0: await asyncio.to_thread(abs, 1)
            finally:
                ctx.leave(cell)
        async def work(n):
            a, b = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=a)
            other = await asyncio.open_connection(sock=b)
            for i in range(n):
                await asyncio.gather(child(i), child(i + 1), return_exceptions=True)
                writer.write(b"x"); await other[0].readexactly(1)
            writer.close(); other[1].close()
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            for _ in range(n): asyncio.get_running_loop().call_soon(int, "x")
            await asyncio.sleep(0.01)
        def rss(): return int(open("/proc/self/statm").read().split()[1]) * 4
        def objects(): gc.collect(); return collections.Counter(type(o).__name__ for o in gc.get_objects())
        async def main():
            for _ in range(3): await work(300)
            before, memory, blocks = objects(), rss(), sys.getallocatedblocks()
            for _ in range(5): await work(600)
            grown = objects() - before
            print({k: v for k, v in grown.items() if v > 20})
            print(sys.getallocatedblocks() - blocks)
            assert sum(grown.values()) < 100, grown
            assert sys.getallocatedblocks() - blocks < 2000
            chain = None
            for i in range(200000):  # each begins in the one before, which then ends
                cell = ctx.Cell(b"t" * 16, b"s" * 8, None, chain)
                if chain: chain.end()
                chain = cell
            depth = 0
            while cell: cell, depth = cell.parent, depth + 1
            assert depth < 5, depth
            deep = None
            for i in range(200000): deep = ctx.Cell(b"t" * 16, b"s" * 8, None, deep)
            del deep
        asyncio.run(main())
        """, True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def test_tasks_on_loops_without_handles(self) -> None:
        """The way for uvloop and unknown versions: the context follows the task, and nothing else changes."""
        source = """
        import inspect
        cells = {}
        async def child(i):
            if cells is not None and os.environ["HOOKS"] == "1":
                cell = ctx.Cell(b"t" * 16, (i + 1).to_bytes(8, "big"), None, ctx.current_cell())
                ctx.enter(cell)
                for _ in range(3):
                    assert ctx.published() == cell.span_id
                    await asyncio.sleep(0.001 * (i % 3))
                ctx.leave(cell)
                assert ctx.published() is None
            return i
        async def fail():
            await asyncio.sleep(0)
            raise KeyError("x")
        async def stopped():
            try: await asyncio.sleep(10)
            finally: print("cleaned")
        async def main():
            print(await asyncio.gather(*map(child, range(10))))
            task = asyncio.create_task(fail(), name="named")
            print(task.get_coro().__name__, asyncio.iscoroutine(task.get_coro()), task.get_name())
            try: await task
            except KeyError as error: print(repr(error))
            task = asyncio.create_task(stopped())
            await asyncio.sleep(0.001)
            task.cancel()
            try: await task
            except asyncio.CancelledError: print("cancelled")
            try: asyncio.create_task(5)
            except TypeError as error: print(error)
            print(await asyncio.wait_for(child(3), 1))
        asyncio.run(main())
        """
        done = self.same(source, TAILSPAN_LOOP="context")
        self.assertEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main(verbosity=1)
