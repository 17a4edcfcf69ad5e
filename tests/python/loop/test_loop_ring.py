"""A program with known waits, its own log, and what the loop ring says about them. CPython 3.10 to 3.13."""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import random
import socket
import sys
import threading
import time
import unittest

from tailspan import _context as ctx

REPORT = ctx.install_loop()

from ring import NO_SPAN, Recording, Span, busy, tid  # noqa: E402

QUALIFIED = sys.version_info >= (3, 11)  # 3.10's code objects have no qualified name


class LoopRingTest(unittest.TestCase):
    def run_recorded(self, main) -> Recording:
        with Recording() as recording:
            asyncio.run(main())
        self.check_whole(recording)
        return recording

    def check_whole(self, recording: Recording) -> None:
        """What holds of every recording."""
        self.assertEqual(recording.loss, {})
        self.assertEqual(recording.raw["holes"], [])
        by_slot: dict[int, list[int]] = {}
        for step in recording.steps:
            self.assertLessEqual(step["ready"], step["start"])
            self.assertLessEqual(step["start"], step["end"])
            by_slot.setdefault(step["id"] >> 48, []).append(step["id"])
        for ids in by_slot.values():  # consecutive: a lost one would show
            ids.sort()
            self.assertEqual(ids, list(range(ids[0], ids[0] + len(ids))))
        for step in recording.steps:
            self.assertTrue(not step["waker"] or step["waker_tid"] or step["waker"] in recording.by_id, step)

    def check_woken(self, recording: Recording, waiter: Span, since: int, by: Span, at: int, site: str) -> None:
        """The waiter's wait from `since` was ended by `by`, which did so just before the moment `at`."""
        step = recording.step_after(waiter, since)
        self.assertEqual(step["waker_span"], by.id, step)
        self.assertLessEqual(step["ready"], at)
        self.assertGreater(step["ready"], since)
        self.assertEqual(recording.span_at(step["tid"], step["ready"]), by.id)
        name = step["site_name"] if QUALIFIED else step["site_name"].split(":")[0]
        self.assertTrue(name.startswith(site if QUALIFIED else site.split(":")[0]), step["site_name"])

    def test_install_reports_what_is_on(self) -> None:
        for part in ("handles", "select", "executor", "gc", "ring", "context"):
            self.assertIs(REPORT[part], True, (part, REPORT))
        self.assertEqual(ctx.install_loop(), REPORT)
        self.assertIsNone(ctx.problem())

    def test_lock_is_released_by_its_holder(self) -> None:
        holder, waiter = Span("holder"), Span("waiter")
        log: dict[str, int] = {}

        async def hold(lock: asyncio.Lock) -> None:
            with holder:
                async with lock:
                    await asyncio.sleep(0.02)
                    busy(2)
                log["released"] = time.monotonic_ns()

        async def wait(lock: asyncio.Lock) -> None:
            with waiter:
                await asyncio.sleep(0.005)
                log["wait"] = time.monotonic_ns()
                async with lock:
                    log["got"] = time.monotonic_ns()

        async def main() -> None:
            lock = asyncio.Lock()
            await asyncio.gather(hold(lock), wait(lock))

        recording = self.run_recorded(main)
        self.check_woken(recording, waiter, log["wait"], holder, log["released"], "locks.py:Lock.")
        step = recording.step_after(waiter, log["wait"])
        self.assertLessEqual(step["start"], log["got"])

    def test_queue_semaphore_and_event(self) -> None:
        giver = Span("giver")
        waiters = {name: Span(name) for name in ("queue", "semaphore", "event")}
        log: dict[str, int] = {}

        async def give(queue: asyncio.Queue, semaphore: asyncio.Semaphore, event: asyncio.Event) -> None:
            with giver:
                await asyncio.sleep(0.01)
                queue.put_nowait(1)
                log["queue given"] = time.monotonic_ns()
                await asyncio.sleep(0.005)
                semaphore.release()
                log["semaphore given"] = time.monotonic_ns()
                await asyncio.sleep(0.005)
                event.set()
                log["event given"] = time.monotonic_ns()

        async def wait(name: str, what) -> None:
            with waiters[name]:
                log[name] = time.monotonic_ns()
                await what()

        async def main() -> None:
            queue, semaphore, event = asyncio.Queue(), asyncio.Semaphore(0), asyncio.Event()
            await asyncio.gather(wait("queue", queue.get), wait("semaphore", semaphore.acquire),
                                 wait("event", event.wait), give(queue, semaphore, event))

        recording = self.run_recorded(main)
        for name, site in (("queue", "queues.py:Queue"), ("semaphore", "locks.py:Semaphore"), ("event", "locks.py:Event")):
            self.check_woken(recording, waiters[name], log[name], giver, log[name + " given"], site)

    def test_first_steps_name_their_creator(self) -> None:
        parent, children = Span("parent"), [Span(f"child {i}") for i in range(20)]
        made: list[tuple[int, int]] = []

        async def child(span: Span) -> None:
            with span:
                await asyncio.sleep(0)

        async def main() -> None:
            with parent:
                for span in children:
                    before = time.monotonic_ns()
                    task = asyncio.create_task(child(span))
                    made.append((before, time.monotonic_ns()))
                    if len(made) % 2:
                        await task  # its address may be used again by the next
                    del task
                await asyncio.sleep(0.01)

        recording = self.run_recorded(main)
        for span, (before, after) in zip(children, made):
            steps = recording.task_of(span)
            self.assertEqual([s["kind"] for s in steps], ["new_task", "soon"])
            self.assertEqual(steps[0]["waker_span"], parent.id)
            self.assertTrue(before <= steps[0]["ready"] <= after)
            if QUALIFIED:
                self.assertIn("test_first_steps_name_their_creator", steps[0]["site_name"])
            self.assertEqual(steps[1]["waker"], steps[0]["id"])

    def test_a_finished_child_wakes_its_parent(self) -> None:
        parent, child_span = Span("parent"), Span("child")
        log: dict[str, int] = {}

        async def child() -> int:
            with child_span:
                await asyncio.sleep(0.01)
                busy(1)
                return 7

        async def main() -> None:
            with parent:
                task = asyncio.create_task(child())
                log["wait"] = time.monotonic_ns()
                self.assertEqual(await task, 7)

        recording = self.run_recorded(main)
        step = recording.step_after(parent, log["wait"])
        waker = recording.by_id[step["waker"]]
        self.assertEqual(waker["task"], recording.task_of(child_span)[0]["task"])
        self.assertEqual(waker["span"], child_span.id)  # its span had closed by then, but it is the last in that step
        left = [c for c in recording.changes if c["step"] == waker["id"] and c["kind"] == "leave"]
        self.assertEqual([(c["previous"], c["span"]) for c in left], [(child_span.id, parent.id)])
        self.assertLessEqual(left[0]["at"], step["ready"])

    def test_to_thread_and_run_in_executor(self) -> None:
        outer = Span("outer")
        log: dict[str, object] = {}

        def work() -> int:
            log["in"], log["tid"] = time.monotonic_ns(), tid()
            log["published"] = ctx.published()
            time.sleep(0.01)
            log["out"] = time.monotonic_ns()
            return 3

        async def main() -> None:
            with outer:
                for way in ("to_thread", "executor"):
                    log["submit"] = time.monotonic_ns()
                    if way == "to_thread":
                        self.assertEqual(await asyncio.to_thread(work), 3)
                    else:
                        self.assertEqual(await asyncio.get_running_loop().run_in_executor(None, work), 3)
                    log["done"] = time.monotonic_ns()
                    self.assertEqual(log["published"], outer.cell.span_id)
                    logs.append(dict(log))

        logs: list[dict[str, object]] = []
        recording = self.run_recorded(main)
        jobs = [s for s in recording.steps if s["kind"] == "executor" and s["span"] == outer.id]
        self.assertEqual(len(jobs), 2)
        for job, seen in zip(jobs, logs):
            self.assertEqual(job["tid"], seen["tid"])
            self.assertTrue(seen["submit"] <= job["ready"] <= job["start"] <= seen["in"])
            self.assertTrue(seen["out"] <= job["end"] + 1_000_000)
            self.assertEqual(job["waker_span"], outer.id)
            self.assertEqual(recording.by_id[job["waker"]]["span"], NO_SPAN if job is jobs[0] else outer.id)
            done = [s for s in recording.steps if s["waker"] == job["id"] and s["tid"] == tid()]
            self.assertEqual(len(done), 1)  # the completion's hop into the loop
            self.assertTrue(seen["out"] <= done[0]["ready"] <= seen["done"])
            last = recording.step_after(outer, done[0]["start"])
            self.assertEqual(last["waker"], done[0]["id"])

    def test_jobs_queue_for_a_worker(self) -> None:
        spans = [Span(f"job {i}") for i in range(6)]
        pool = concurrent.futures.ThreadPoolExecutor(1)
        with Recording() as recording:
            futures = []
            with contextlib.ExitStack() as open_spans:
                for span in spans:
                    open_spans.enter_context(span)
                    futures.append(pool.submit(busy, 3))
                for future in futures:
                    future.result()
            pool.shutdown()
        self.check_whole(recording)
        jobs = [recording.steps_of(span, "executor")[0] for span in spans]
        for before, job in zip(jobs, jobs[1:]):
            self.assertGreaterEqual(job["start"], before["end"])
            self.assertEqual(job["waker_tid"], tid())  # a plain thread submitted it
            self.assertEqual(job["outer"], NO_SPAN)
        self.assertGreater(jobs[-1]["start"] - jobs[-1]["ready"], 12_000_000)

    def test_timers_are_ready_when_due_or_when_the_poll_returned(self) -> None:
        sleeper, blocker = Span("sleeper"), Span("blocker")
        log: dict[str, int] = {}

        async def sleep() -> None:
            with sleeper:
                log["a"] = time.monotonic_ns()
                await asyncio.sleep(0.02)
                log["b"] = time.monotonic_ns()
                await asyncio.sleep(0.01)
                log["c"] = time.monotonic_ns()

        async def block() -> None:
            with blocker:
                while "b" not in log:
                    await asyncio.sleep(0.001)
                busy(30)  # the sleeper's second timer falls due in here
                log["unblocked"] = time.monotonic_ns()

        async def main() -> None:
            await asyncio.gather(sleep(), block())

        recording = self.run_recorded(main)
        hop = recording.by_id[recording.step_after(sleeper, log["b"])["waker"]]
        self.assertEqual(hop["kind"], "timer")
        due = log["b"] + 10_000_000
        self.assertTrue(due <= hop["ready"] < due + 15_000_000)  # due, not when the loop was free
        self.assertGreater(hop["start"], log["unblocked"] - 1_000_000)
        first = recording.by_id[recording.step_after(sleeper, log["a"])["waker"]]
        self.assertGreaterEqual(first["ready"], log["a"] + 20_000_000)

    def test_sockets_are_ready_when_the_poll_returned(self) -> None:
        client, server = Span("client"), Span("server")

        async def serve(end: socket.socket) -> None:
            with server:
                reader, writer = await asyncio.open_connection(sock=end)
                for _ in range(5):
                    data = await reader.readexactly(64)
                    await asyncio.sleep(0.003)
                    writer.write(data)
                writer.close()

        async def main() -> None:
            a, b = socket.socketpair()
            task = asyncio.create_task(serve(a))
            with client:
                reader, writer = await asyncio.open_connection(sock=b)
                log["fd"] = b.fileno()
                for _ in range(5):
                    writer.write(b"x" * 64)
                    log.setdefault("sent", time.monotonic_ns())
                    await reader.readexactly(64)
                    log.setdefault("received", time.monotonic_ns())
                writer.close()
            await task

        log: dict[str, int] = {}
        recording = self.run_recorded(main)
        reads = [s for s in recording.steps if s["kind"] == "io_read" and s["fd"] == log["fd"]]
        self.assertGreaterEqual(len(reads), 5)
        self.assertTrue(all(s["waker"] == 0 for s in reads))
        returns = {p["return"] for p in recording.polls}
        self.assertTrue(all(s["ready"] in returns for s in reads))
        self.assertTrue(log["sent"] + 3_000_000 <= reads[0]["ready"] <= log["received"])
        woken = recording.step_after(client, log["sent"])
        self.assertEqual(woken["waker"], reads[0]["id"])

    def test_cancel_and_exceptions(self) -> None:
        canceller, victim, failing = Span("canceller"), Span("victim"), Span("failing")
        log: dict[str, int] = {}

        async def wait() -> None:
            with victim:
                log["wait"] = time.monotonic_ns()
                await asyncio.sleep(10)

        async def fail() -> None:
            with failing:
                await asyncio.sleep(0.001)
                raise ValueError("on purpose")

        async def main() -> None:
            task = asyncio.create_task(wait())
            with canceller:
                await asyncio.sleep(0.005)
                task.cancel()
                log["cancelled"] = time.monotonic_ns()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                with self.assertRaises(ValueError):
                    await fail()
                self.assertEqual(ctx.published(), canceller.cell.span_id)
            self.assertIsNone(ctx.published())

        recording = self.run_recorded(main)
        self.check_woken(recording, victim, log["wait"], canceller, log["cancelled"], "test_loop_ring.py:")

    def test_the_timeline_says_what_each_thread_did_at_each_moment(self) -> None:
        """Probes in tasks, jobs and plain threads note (thread, moment, span); the records must agree on all."""
        probes: list[tuple[int, int, str]] = []
        chance = random.Random(5)

        def probe(span: Span | None) -> None:
            probes.append((tid(), time.monotonic_ns(), span.id if span else NO_SPAN))
            busy(0.02)
            probes.append((tid(), time.monotonic_ns(), span.id if span else NO_SPAN))

        def job(outer: Span) -> None:
            probe(outer)
            with Span("in job") as inner:
                probe(inner)
            probe(outer)

        async def request(depth: int, outer: Span | None) -> None:
            with Span("request") as span:
                probe(span)
                for _ in range(3):
                    way = chance.randrange(5)
                    if way == 0:
                        await asyncio.sleep(chance.random() * 0.002)
                    elif way == 1:
                        await asyncio.to_thread(job, span)
                    elif way == 2 and depth:
                        await request(depth - 1, span)
                    elif way == 3 and depth:
                        await asyncio.gather(*(request(depth - 1, span) for _ in range(2)))
                    else:
                        async with lock:
                            await asyncio.sleep(0)
                            probe(span)
                    probe(span)
            probe(outer)

        def plain() -> None:
            probe(None)
            for _ in range(20):
                with Span("plain") as span:
                    probe(span)
                    time.sleep(0.001)
                    with Span("inner") as inner:
                        probe(inner)
                    probe(span)
            probe(None)

        async def main() -> None:
            nonlocal lock
            lock = asyncio.Lock()
            await asyncio.gather(*(request(2, None) for _ in range(12)))

        lock: asyncio.Lock
        threads = [threading.Thread(target=plain) for _ in range(3)]
        with Recording() as recording:
            for thread in threads:
                thread.start()
            asyncio.run(main())
            for thread in threads:
                thread.join()
        self.check_whole(recording)
        self.assertGreater(len(probes), 300)
        wrong = [(p, recording.span_at(p[0], p[1])) for p in probes if recording.span_at(p[0], p[1]) != p[2]]
        self.assertEqual(wrong, [])

    def test_garbage_collections(self) -> None:
        span = Span("collecting")
        with Recording() as recording, span:
            before = time.monotonic_ns()
            gc.collect()
            after = time.monotonic_ns()
        mine = [g for g in recording.gc if g["span"] == span.id and g["generation"] == 2]
        self.assertEqual(len(mine), 1)
        self.assertTrue(before <= mine[0]["start"] <= mine[0]["end"] <= after)

    def test_a_gil_wait_stands_between_the_polls_return_and_its_end(self) -> None:
        stop = threading.Event()

        def hog() -> None:
            while not stop.is_set():
                sum(range(2000))

        async def main() -> None:
            for _ in range(20):
                await asyncio.sleep(0.002)

        thread = threading.Thread(target=hog)
        thread.start()
        try:
            recording = self.run_recorded(main)
        finally:
            stop.set()
            thread.join()
        waits = [p["resume"] - p["return"] for p in recording.polls if p["return"] - p["enter"] > 500_000]
        self.assertGreater(sum(waits) / len(waits), 1_000_000)  # the switch interval is 5 ms

    @unittest.skipIf(sys.version_info < (3, 12), "eager tasks came with 3.12")
    def test_eager_tasks(self) -> None:
        parent, child_span = Span("parent"), Span("child")
        log: dict[str, int] = {}

        async def child() -> None:
            with child_span:
                self.assertEqual(ctx.published(), child_span.cell.span_id)
                log["in"] = time.monotonic_ns()
                await asyncio.sleep(0.005)
                self.assertEqual(ctx.published(), child_span.cell.span_id)

        async def main() -> None:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
            with parent:
                task = asyncio.create_task(child())
                self.assertEqual(ctx.published(), parent.cell.span_id)
                log["out"] = time.monotonic_ns()
                busy(0.1)
                await task

        recording = self.run_recorded(main)
        steps = recording.task_of(child_span)
        self.assertEqual(steps[0]["kind"], "new_task")
        self.assertTrue(steps[0]["start"] <= log["in"] <= steps[0]["end"] <= log["out"])
        self.assertEqual(steps[0]["outer"], parent.id)
        self.assertEqual(recording.span_at(tid(), log["in"]), child_span.id)
        self.assertEqual(recording.span_at(tid(), log["out"]), parent.id)
        self.assertEqual(len(steps), 2)

    @unittest.skipIf(sys.version_info < (3, 12), "eager tasks came with 3.12")
    def test_eager_tasks_of_other_factories(self) -> None:
        def factory(loop, coro, **kwargs) -> asyncio.Task:
            return asyncio.Task(coro, loop=loop, **(kwargs | {"eager_start": True}))

        async def child(span: Span) -> None:
            with span:
                self.assertEqual(ctx.published(), span.cell.span_id)
                await asyncio.sleep(0.002)
                self.assertEqual(ctx.published(), span.cell.span_id)

        async def main() -> None:
            with Span("parent") as parent:
                if sys.version_info >= (3, 14):
                    asked = asyncio.create_task(child(Span("asked for")), eager_start=True)
                    self.assertEqual(ctx.published(), parent.cell.span_id)
                    await asked
                asyncio.get_running_loop().set_task_factory(factory)
                task = asyncio.create_task(child(child_span))
                self.assertEqual(ctx.published(), parent.cell.span_id)
                log["out"] = time.monotonic_ns()
                parents.append(parent.id)
                await task

        child_span, parents = Span("child"), []
        log: dict[str, int] = {}
        recording = self.run_recorded(main)
        self.assertEqual(recording.span_at(tid(), log["out"]), parents[0])


if __name__ == "__main__":
    unittest.main(verbosity=1)
