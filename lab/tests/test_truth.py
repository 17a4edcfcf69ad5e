"""The lab's own judgement, by hand-made rows."""

from __future__ import annotations

import os
import random
import sys
import time
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner import case, cpu, truth  # noqa: E402
from runner.case import Case, Row  # noqa: E402

MS = 1_000_000
CLIENT: dict[str, Any] = {"bottleneck": []}
EVIDENCE = {"cpu": {"ours": 0.3, "others": 0.0}, "windows": [(0, 10 * MS)]}


def row(number: int, start_ms: float, length_ms: float, *steps: tuple[str, float, float], path: str = "/ask") -> Row:
    start, end = int(start_ms * MS), int((start_ms + length_ms) * MS)
    logged = [
        {"name": name, "start_mono_ns": int(a * MS), "end_mono_ns": int(b * MS), "major_faults": 3}
        for name, a, b in steps
    ]
    service = {"start_mono_ns": start, "end_mono_ns": end, "steps": logged}
    return {"id": str(number), "status": 200, "intended_mono_ns": start, "end_mono_ns": end,
            "service": service, "path": path}


class HitTest(unittest.TestCase):
    def test_gil(self) -> None:
        hit = case.load("gil").hit
        upload = row(0, 0, 900, ("chunk", 10, 800), path="/upload")
        during, after = row(1, 700, 200), row(2, 790, 60)
        rows = [upload, during, after]
        self.assertEqual([hit(r, rows, {}) for r in rows], [False, True, False])

    def test_retransmit(self) -> None:
        hit = case.load("retransmit").hit
        self.assertTrue(hit(row(0, 0, 300, ("chroma_query", 10, 250)), [], {}))
        self.assertFalse(hit(row(0, 0, 300, ("chroma_query", 10, 30)), [], {}))

    def test_txqueue(self) -> None:
        hit = case.load("txqueue-async").hit
        evidence = {"windows": [(100 * MS, 500 * MS)]}
        self.assertTrue(hit(row(0, 0, 400, ("chroma_query", 80, 400)), [], evidence))
        self.assertFalse(hit(row(0, 0, 110, ("chroma_query", 80, 110)), [], evidence))

    def test_coldindex(self) -> None:
        hit = case.load("coldindex").hit
        self.assertTrue(hit(row(0, 0, 400, ("index_search", 80, 400)), [], {}))
        self.assertFalse(hit(row(0, 0, 400, ("index_search", 80, 81)), [], {}))


class JudgeTest(unittest.TestCase):
    def judge(self, slow: int, client: dict[str, Any] = CLIENT, **evidence: Any) -> dict[str, Any]:
        rows = [row(n, 0, 300 if n < slow else 30) for n in range(200)]
        one = Case("x", "x", 1, lambda rng, n: [], case.Accept("fault"),
                   hit=lambda r, *_: r["end_mono_ns"] > 100 * MS, hit_share=(0.03, 0.10))
        return truth.judge(one, rows, {**EVIDENCE, **evidence}, client)

    def test_a_good_run(self) -> None:
        told = self.judge(slow=10)
        self.assertEqual((told["hit"], told["hit_share"], told["void"]), (10, 0.05, []))
        self.assertEqual((told["hit_ms"]["p50"], told["other_ms"]["p50"]), (300.0, 30.0))

    def test_void_runs(self) -> None:
        self.assertIn("1.0 % of requests were hit", self.judge(slow=2)["void"][0])
        self.assertIn("20.0 % of requests were hit", self.judge(slow=40)["void"][0])
        self.assertIn("late", self.judge(10, {"bottleneck": ["late"]})["void"][0])
        self.assertIn("others used 40 %", self.judge(10, cpu={"ours": 0.2, "others": 0.4})["void"][0])

    def test_other_operations_do_not_count(self) -> None:
        rows = [row(n, 0, 30) for n in range(100)] + [row(200, 0, 900, path="/upload")]
        told = truth.judge(case.load("gil"), rows, EVIDENCE, CLIENT)
        self.assertEqual((told["requests"], told["latency_ms"]["max"]), (100, 30.0))


class PlanTest(unittest.TestCase):
    def test_uploads_are_spread(self) -> None:
        plan = case.load("gil").workload(random.Random(1), 2000)
        asks = [r for r in plan if r.path == "/ask"]
        places = [n for n, r in enumerate(plan) if r.path == "/upload"]
        self.assertEqual((len(asks), len(places)), (2000, 10))
        self.assertTrue(all(b - a > 40 for a, b in zip(places, places[1:])))

    def test_a_plan_is_the_same_for_the_same_seed(self) -> None:
        build = case.load("healthy-mid").workload
        self.assertEqual(build(random.Random("a"), 50), build(random.Random("a"), 50))
        self.assertNotEqual(build(random.Random("a"), 50), build(random.Random("b"), 50))


class CpuTest(unittest.TestCase):
    def test_work_of_our_own_counts_as_ours(self) -> None:
        before = cpu.tree_s(os.getpid())
        deadline = time.process_time() + 0.1
        while time.process_time() < deadline:
            pass
        self.assertAlmostEqual(cpu.tree_s(os.getpid()) - before, 0.1, delta=0.05)


if __name__ == "__main__":
    unittest.main()
