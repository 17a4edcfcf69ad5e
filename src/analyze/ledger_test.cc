// Golden ledgers of small recordings, computed by hand. A ledger prints as one line a piece: "start-end span cause
// blame", us.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "analyze/analyze.h"
#include "analyze/recording_builder.h"

namespace tailspan::analyze {
namespace {

using model::Cause;
using model::StepKind;
using model::WaitClass;

std::string Print(const model::TraceLedger& ledger) {
  std::string out;
  for (const model::LedgerPiece& piece : ledger.pieces) {
    std::string blame = piece.blame.name == "self" ? "" : piece.blame.name;
    out += fmt::format("{}-{} {} {}{}{}\n", piece.start_ns / 1000, piece.end_ns / 1000, ledger.paths[piece.path].back(),
                       model::CauseName(piece.cause), blame.empty() ? "" : " ", blame);
  }
  return out;
}

std::string Golden(const RecordingBuilder& recording, size_t which = 0) {
  base::LossCounters loss;
  auto ledgers = BuildLedgers(recording.batch, {}, &loss);
  EXPECT_GT(ledgers.size(), which);
  if (ledgers.size() <= which) return "";
  EXPECT_EQ(model::CheckLaw(ledgers[which]), "");
  EXPECT_TRUE(Contradictions(loss).empty());
  return Print(ledgers[which]);
}

TEST(Ledger, SpansAloneTakeTheLastFinishingChild) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "a", 10, 40).Span(3, 1, "b", 20, 90).Span(4, 3, "c", 30, 60);
  EXPECT_EQ(Golden(r),
            "0-20 root unexplained\n20-30 b unexplained\n30-60 c unexplained\n60-90 b unexplained\n90-100 root "
            "unexplained\n");
}

TEST(Ledger, SpansAloneClipOverrunningChildren) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "stream", 10, 150).Span(3, 2, "chunk", 20, 40);
  EXPECT_EQ(Golden(r),
            "0-10 root unexplained\n10-20 stream unexplained\n20-40 chunk unexplained\n40-100 stream unexplained\n");
}

TEST(Ledger, PlainThreadIsCutByTheKernelsBook) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "read", 20, 80);
  r.Change(0, 1, 0, 0).Change(20, 2, 1, 0).Change(80, 1, 2, 0).Change(100, 0, 1, 0);
  auto& wait = r.Wait(100, 0, 30, 60, 70, WaitClass::kDiskRead, Cause::kDiskRead);
  wait.target.kind = model::TargetKind::kFile;
  std::snprintf(wait.target.name.data(), wait.target.name.size(), "index.bin");
  wait.occupants[0] = {7, 7, 10000, 0, {'m', 'a', 'k', 'e'}};
  r.Cpu(100, 70, 110);
  EXPECT_EQ(Golden(r),
            "0-20 root on_cpu\n20-30 read on_cpu\n30-60 read disk_read index.bin\n60-70 read run_queue make\n"
            "70-80 read on_cpu\n80-100 root on_cpu\n");
}

TEST(Ledger, LostRecordsAreUnexplained) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Change(0, 1, 0, 0).Change(100, 0, 1, 0).Cpu(100, 0, 30).Cpu(100, 50, 120);
  EXPECT_EQ(Golden(r), "0-30 root on_cpu\n30-50 root unexplained\n50-100 root on_cpu\n");
}

// What follows from the order of the loop's records alone is not told where some of them were lost: neither waits nor
// whose step ran. The record after the hole is a step, and tells of its own time.
TEST(Ledger, LostLoopRecordsAreUnexplained) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(9, 0, "other", 0, 300, 2);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 0, 0x90, StepKind::kTimer, 9, 60, 60, 78);
  r.Step(3, 0, 0x10, StepKind::kTimer, 1, 50, 80, 100);
  r.Cpu(100, 0, 10).Cpu(100, 45, 110);
  r.Wait(100, 10, 10, 45, 45, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-10 root on_cpu\n10-50 root sleep timer\n50-60 root event_loop event loop\n60-78 root event_loop other\n"
            "78-80 root event_loop event loop\n80-100 root on_cpu\n");
  r.Hole(40, 78, 7);
  EXPECT_EQ(Golden(r),
            "0-10 root on_cpu\n10-40 root sleep timer\n40-60 root unexplained\n60-78 root event_loop other\n"
            "78-80 root event_loop event loop\n80-100 root on_cpu\n");
  base::LossCounters loss;
  EXPECT_EQ(BuildLedgers(r.batch, {}, &loss)[0].pieces[2].evidence, "7 records of the loop lost here");
  EXPECT_GT(loss.Get(base::Loss::kLedgerHole), 0u);
}

// The kernel's own book and the span that it read outlive lost loop records.
TEST(Ledger, LostLoopRecordsLeaveTheKernelsBook) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Change(0, 1, 0, 0, 101).Change(100, 0, 1, 0, 101).Hole(20, 90, 3, 101);
  r.Cpu(101, 0, 50).Cpu(101, 50, 120);
  EXPECT_EQ(Golden(r), "0-20 root on_cpu\n20-90 root unexplained\n90-100 root on_cpu\n");
  r.batch.intervals[1].span_id = 1;
  EXPECT_EQ(Golden(r), "0-20 root on_cpu\n20-50 root unexplained\n50-100 root on_cpu\n");
}

// A task's address used again while the records of its first step were lost: the former task's steps are not its own.
TEST(Ledger, AnotherTasksStepsBeforeLostRecordsAreNotItsOwn) {
  RecordingBuilder r;
  r.Span(9, 0, "other", 0, 25, 2).Span(1, 0, "root", 30, 100);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 9, 0, 0, 20);
  r.Step(3, 0, 0x10, StepKind::kTimer, 1, 80, 80, 100).Hole(20, 100, 2);
  r.Cpu(100, 0, 20).Cpu(100, 80, 110);
  r.Wait(100, 20, 20, 80, 80, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r, 1), "0-50 root unexplained\n50-70 root on_cpu\n");
}

TEST(Ledger, OnCpuIsMeasuredNotInferred) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Change(0, 1, 0, 0).Change(100, 0, 1, 0).Cpu(100, 0, 100);
  r.batch.intervals[0].on_cpu_ns = 60'000;
  r.batch.intervals[0].short_ns[static_cast<size_t>(WaitClass::kFutex)] = 30'000;
  EXPECT_EQ(Golden(r), "0-60 root on_cpu\n60-90 root lock\n90-100 root unexplained\n");
}

// gather(a, b): the root's task is resumed by b, which ended last; a is off the path.
TEST(Ledger, GatherFollowsTheLastToFinish) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "a", 12, 40).Span(3, 1, "b", 14, 80);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 1, 0x20, StepKind::kNewTask, 1, 8, 12, 14).Change(12, 2, 1, 2);
  r.Step(3, 1, 0x30, StepKind::kNewTask, 1, 9, 14, 20).Change(14, 3, 1, 3);
  r.Step(4, 0, 0x20, StepKind::kTimer, 2, 40, 40, 41);
  r.Step(5, 0, 0x30, StepKind::kTimer, 3, 78, 78, 82).Change(80, 1, 3, 5);
  r.Step(6, 5, 0x10, StepKind::kSoon, 1, 81, 84, 100);
  r.Cpu(100, 0, 20).Cpu(100, 40, 41).Cpu(100, 78, 110);
  r.Wait(100, 20, 20, 40, 40, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 41, 41, 78, 78, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-9 root on_cpu\n9-10 root event_loop root\n10-12 root event_loop event loop\n12-14 root event_loop a\n"
            "14-20 b on_cpu\n20-78 b sleep timer\n78-80 b on_cpu\n80-81 root on_cpu\n81-82 root event_loop root\n"
            "82-84 root event_loop event loop\n84-100 root on_cpu\n");
}

// A server may end its span when the answer is sent, inside a span that lies below it: the task is followed all the
// same, though the root was current only in its first step.
TEST(Ledger, RootThatEndsInsideItsChild) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 90).Span(2, 1, "handler", 5, 100);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10).Change(5, 2, 1, 1);
  r.Step(3, 0, 0x10, StepKind::kTimer, 2, 60, 60, 110).Change(100, 0, 2, 3);
  r.Cpu(100, 0, 10).Cpu(100, 60, 110);
  r.Wait(100, 10, 10, 60, 60, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r), "0-5 root on_cpu\n5-10 handler on_cpu\n10-60 handler sleep timer\n60-90 handler on_cpu\n");
}

// A background task that outlives the root is never on its path.
TEST(Ledger, BackgroundTaskIsOffThePath) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 50).Span(2, 1, "background", 10, 200);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 1, 0x20, StepKind::kNewTask, 1, 8, 10, 20).Change(10, 2, 1, 2);
  r.Step(3, 0, 0x10, StepKind::kTimer, 1, 30, 30, 50);
  r.Step(4, 0, 0x20, StepKind::kTimer, 2, 190, 190, 200);
  r.Cpu(100, 0, 20).Cpu(100, 30, 50);
  r.Wait(100, 20, 20, 30, 30, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r), "0-10 root on_cpu\n10-30 root sleep timer\n30-50 root on_cpu\n");
}

// Nor is one that ended in time, but that nobody awaited.
TEST(Ledger, TaskThatNobodyAwaitedIsOffThePath) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "audit", 10, 62);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 1, 0x20, StepKind::kNewTask, 1, 8, 10, 20).Change(10, 2, 1, 2);
  r.Step(3, 0, 0x20, StepKind::kTimer, 2, 60, 60, 64).Change(62, 1, 2, 3);
  r.Step(4, 0, 0x10, StepKind::kTimer, 1, 70, 70, 100);
  r.Cpu(100, 0, 20).Cpu(100, 60, 64).Cpu(100, 70, 110);
  r.Wait(100, 20, 20, 60, 60, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 64, 64, 70, 70, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r), "0-10 root on_cpu\n10-70 root sleep timer\n70-100 root on_cpu\n");
}

// A job sent off and never awaited works on with the root's own span, past the root's end.
TEST(Ledger, JobThatOutlivesTheRootIsOffThePath) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(20, 1, 0, StepKind::kExecutor, 1, 8, 9, 150, 101);
  r.Step(2, 0, 0x10, StepKind::kTimer, 1, 70, 70, 105).Change(99, 0, 1, 2);
  r.Cpu(100, 0, 10).Cpu(100, 70, 110).Cpu(101, 9, 160);
  r.Wait(100, 10, 10, 70, 70, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r), "0-10 root on_cpu\n10-70 root sleep timer\n70-100 root on_cpu\n");
}

// as_completed(a, b): a task's completion callback puts it into a queue, which lets the consumer go on. What it did
// with a's result lies within the wait for b, which came last.
TEST(Ledger, AsCompletedFollowsTheOneAwaitedLast) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "a", 10, 31).Span(3, 1, "b", 12, 71);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 1, 0x20, StepKind::kNewTask, 1, 8, 10, 12).Change(10, 2, 1, 2);
  r.Step(3, 1, 0x30, StepKind::kNewTask, 1, 9, 12, 14).Change(12, 3, 1, 3);
  r.Step(4, 0, 0x20, StepKind::kTimer, 2, 30, 30, 32).Change(31, 1, 2, 4);
  r.Step(5, 4, 0, StepKind::kSoon, 1, 32, 33, 34);
  r.Step(6, 5, 0x10, StepKind::kSoon, 1, 34, 35, 45);
  r.Step(7, 0, 0x30, StepKind::kTimer, 3, 70, 70, 72).Change(71, 1, 3, 7);
  r.Step(8, 7, 0, StepKind::kSoon, 1, 72, 72, 74);
  r.Step(9, 8, 0x10, StepKind::kSoon, 1, 73, 75, 100);
  r.Cpu(100, 0, 14).Cpu(100, 30, 45).Cpu(100, 70, 110);
  r.Wait(100, 14, 14, 30, 30, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 45, 45, 70, 70, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-9 root on_cpu\n9-10 root event_loop root\n10-12 root event_loop a\n12-14 b on_cpu\n"
            "14-70 b sleep timer\n70-71 b on_cpu\n71-73 root on_cpu\n73-74 root event_loop root\n"
            "74-75 root event_loop event loop\n75-100 root on_cpu\n");
}

// The consumer is busy with a's result when b's comes: b was never waited for.
TEST(Ledger, AsCompletedResultThatWaitsForItsConsumerIsOffThePath) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "a", 10, 31).Span(3, 1, "b", 12, 61);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 1, 0x20, StepKind::kNewTask, 1, 8, 10, 12).Change(10, 2, 1, 2);
  r.Step(3, 1, 0x30, StepKind::kNewTask, 1, 9, 12, 14).Change(12, 3, 1, 3);
  r.Step(4, 0, 0x20, StepKind::kTimer, 2, 30, 30, 32).Change(31, 1, 2, 4);
  r.Step(5, 4, 0, StepKind::kSoon, 1, 32, 32, 34);
  r.Step(6, 5, 0x10, StepKind::kSoon, 1, 33, 34, 45);
  r.Step(7, 0, 0x30, StepKind::kTimer, 3, 60, 60, 62).Change(61, 1, 3, 7);
  r.Step(8, 7, 0, StepKind::kSoon, 1, 62, 62, 63);
  r.Step(9, 0, 0x10, StepKind::kTimer, 1, 80, 80, 100);
  r.Cpu(100, 0, 14).Cpu(100, 30, 45).Cpu(100, 60, 63).Cpu(100, 80, 110);
  r.Wait(100, 14, 14, 30, 30, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 45, 45, 60, 60, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 63, 63, 80, 80, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-8 root on_cpu\n8-10 root event_loop root\n10-12 a on_cpu\n12-30 a sleep timer\n30-31 a on_cpu\n"
            "31-33 root on_cpu\n33-34 root event_loop root\n34-45 root on_cpu\n45-80 root sleep timer\n"
            "80-100 root on_cpu\n");
}

// A generator runs in its consumer's task. Between chunks the stream's span is open, but the consumer's is current: the
// time is the consumer's, on the CPU and asleep.
TEST(Ledger, SlowConsumerOfAStreamHoldsItsOwnTime) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "stream", 5, 84);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10).Change(5, 2, 1, 1);
  r.Step(2, 0, 0x10, StepKind::kTimer, 2, 30, 30, 40).Change(32, 1, 2, 2);
  r.Step(3, 0, 0x10, StepKind::kTimer, 1, 60, 60, 65).Change(62, 2, 1, 3);
  r.Step(4, 0, 0x10, StepKind::kTimer, 2, 80, 80, 100).Change(84, 1, 2, 4);
  r.Cpu(100, 0, 10).Cpu(100, 30, 40).Cpu(100, 60, 65).Cpu(100, 80, 110);
  r.Wait(100, 10, 10, 30, 30, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 40, 40, 60, 60, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 65, 65, 80, 80, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-5 root on_cpu\n5-10 stream on_cpu\n10-30 stream sleep timer\n30-32 stream on_cpu\n32-40 root on_cpu\n"
            "40-60 root sleep timer\n60-62 root on_cpu\n62-65 stream on_cpu\n65-80 stream sleep timer\n"
            "80-84 stream on_cpu\n84-100 root on_cpu\n");
}

// A stream out of a task of its own, through a queue: the consumer waits for the first chunk only; then it is the
// slower, and the producer's work is off the path though its span is open.
TEST(Ledger, StreamThatWaitsForItsConsumerIsOffThePath) {
  RecordingBuilder r;
  r.Site(1, "queues.py:Queue.put_nowait");
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "stream", 10, 52);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 1, 0x20, StepKind::kNewTask, 1, 8, 10, 12).Change(10, 2, 1, 2);
  r.Step(3, 0, 0x20, StepKind::kTimer, 2, 30, 30, 34);
  r.Step(4, 3, 0x10, StepKind::kSoon, 1, 32, 34, 36);
  r.batch.steps.back().site = 1;
  r.Step(5, 0, 0x20, StepKind::kTimer, 2, 50, 50, 54).Change(52, 1, 2, 5);
  r.Step(6, 0, 0x10, StepKind::kTimer, 1, 70, 70, 100);
  r.Cpu(100, 0, 12).Cpu(100, 30, 36).Cpu(100, 50, 54).Cpu(100, 70, 110);
  r.Wait(100, 12, 12, 30, 30, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 36, 36, 50, 50, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 54, 54, 70, 70, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-8 root on_cpu\n8-10 root event_loop root\n10-12 stream on_cpu\n12-30 stream sleep timer\n"
            "30-32 stream on_cpu\n32-34 root event_loop stream\n34-36 root on_cpu\n36-70 root sleep timer\n"
            "70-100 root on_cpu\n");
}

// The consumer leaves the stream after its first chunk. The loop closes the generator in a task of its own, after the
// root has ended: the root never waited for that.
TEST(Ledger, StreamLeftEarlyAndClosedLateIsOffThePath) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "stream", 5, 120);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10).Change(5, 2, 1, 1);
  r.Step(2, 0, 0x10, StepKind::kTimer, 2, 30, 30, 40).Change(32, 1, 2, 2);
  r.Step(3, 2, 0, StepKind::kSoon, 1, 36, 40, 41);  // call_soon(create_task, generator.aclose())
  r.Step(4, 3, 0x40, StepKind::kNewTask, 1, 41, 42, 45).Change(43, 2, 1, 4);
  r.Step(5, 0, 0x10, StepKind::kTimer, 1, 70, 70, 100);
  r.Step(6, 0, 0x40, StepKind::kTimer, 2, 110, 110, 125).Change(120, 1, 2, 6);
  r.Cpu(100, 0, 10).Cpu(100, 30, 45).Cpu(100, 70, 100).Cpu(100, 110, 130);
  r.Wait(100, 10, 10, 30, 30, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 45, 45, 70, 70, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 100, 100, 110, 110, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-5 root on_cpu\n5-10 stream on_cpu\n10-30 stream sleep timer\n30-32 stream on_cpu\n32-40 root on_cpu\n"
            "40-70 root sleep timer\n70-100 root on_cpu\n");
}

// The consumer leaves early and awaits the generator's aclose(): its cleaning up is the stream's, on the path.
TEST(Ledger, StreamLeftEarlyAndClosedAtOnceIsOnThePath) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "stream", 5, 62);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10).Change(5, 2, 1, 1);
  r.Step(2, 0, 0x10, StepKind::kTimer, 2, 30, 30, 40).Change(32, 1, 2, 2).Change(36, 2, 1, 2);
  r.Step(3, 0, 0x10, StepKind::kTimer, 2, 60, 60, 100).Change(62, 1, 2, 3);
  r.Cpu(100, 0, 10).Cpu(100, 30, 40).Cpu(100, 60, 110);
  r.Wait(100, 10, 10, 30, 30, WaitClass::kPoll, Cause::kNetRecv);
  r.Wait(100, 40, 40, 60, 60, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-5 root on_cpu\n5-10 stream on_cpu\n10-30 stream sleep timer\n30-32 stream on_cpu\n32-36 root on_cpu\n"
            "36-40 stream on_cpu\n40-60 stream sleep timer\n60-62 stream on_cpu\n62-100 root on_cpu\n");
}

// A job of a pool: queued behind another request's job, then run; the loop resumes by the job's completion callback.
TEST(Ledger, ExecutorJobPassesThroughAndItsQueueIsBlamed) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "embed", 5, 90).Span(9, 0, "other", 0, 300, 2);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10).Change(5, 2, 1, 1);
  r.Step(20, 0, 0, StepKind::kExecutor, 9, 0, 0, 40, 101);
  r.Step(21, 1, 0, StepKind::kExecutor, 2, 8, 45, 80, 101);
  r.Step(3, 21, 0, StepKind::kSoon, 0, 79, 82, 84);  // the future's callback on the loop
  r.Step(4, 3, 0x10, StepKind::kSoon, 2, 83, 85, 100).Change(90, 1, 2, 4);
  r.Cpu(100, 0, 10).Cpu(100, 82, 110).Cpu(101, 0, 90);
  r.Wait(100, 10, 10, 81, 82, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(
      Golden(r),
      "0-5 root on_cpu\n5-8 embed on_cpu\n8-40 embed queue other\n40-45 embed queue thread pool\n45-79 embed on_cpu\n"
      "79-81 embed event_loop event loop\n81-82 embed run_queue\n82-83 embed on_cpu\n83-85 embed event_loop event "
      "loop\n"
      "85-90 embed on_cpu\n90-100 root on_cpu\n");
}

// Another request's step releases an asyncio lock: final, blamed on that request's span.
TEST(Ledger, AnotherRequestsLockIsFinal) {
  RecordingBuilder r;
  r.Site(1, "locks.py:Lock.release");
  r.Span(1, 0, "root", 0, 100).Span(9, 0, "other", 0, 300, 2);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 0, 0x90, StepKind::kTimer, 9, 60, 60, 70);
  r.Step(3, 2, 0x10, StepKind::kSoon, 1, 65, 70, 100);
  r.batch.steps.back().site = 1;
  r.Cpu(100, 0, 10).Cpu(100, 60, 110);
  r.Wait(100, 10, 10, 60, 60, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r), "0-10 root on_cpu\n10-65 root lock other\n65-70 root event_loop other\n70-100 root on_cpu\n");
}

// Ready, but the loop's thread waits for the GIL: gil, blamed on the span of the thread that gives it up.
TEST(Ledger, GilPassesThroughEventLoop) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(9, 0, "chunk", 0, 300, 2);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(3, 0, 0x10, StepKind::kTimer, 1, 20, 70, 100);
  r.Step(20, 0, 0, StepKind::kExecutor, 9, 0, 0, 200, 101);
  r.Wait(100, 0, 10, 20, 20, WaitClass::kPoll, Cause::kNetRecv);
  auto& gil = r.Wait(100, 20, 21, 68, 69, WaitClass::kGil, Cause::kGil);
  gil.waker.kind = model::WakerKind::kThread;
  gil.waker.pid = RecordingBuilder::kPid;
  gil.waker.tid = 101;
  gil.waker.futex_address = 0x1000;
  r.Cpu(100, 69, 110).Cpu(101, 0, 200);
  EXPECT_EQ(Golden(r),
            "0-10 root on_cpu\n10-20 root sleep timer\n20-21 root event_loop event loop\n21-68 root gil chunk\n"
            "68-69 root run_queue\n69-70 root event_loop event loop\n70-100 root on_cpu\n");
}

// CPython waits for the GIL in slices; what lies between two of them is still the wait.
TEST(Ledger, GilSlicesAreOneWait) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Change(0, 1, 0, 0).Change(100, 0, 1, 0);
  r.Span(9, 0, "chunk", 0, 300, 2).Change(0, 9, 0, 0, 101);
  r.Wait(100, 0, 10, 40, 44, WaitClass::kGil, Cause::kGil);  // its timer woke it; it got a CPU 4 us later
  auto& last = r.Wait(100, 44, 46, 80, 85, WaitClass::kGil, Cause::kGil);
  last.waker.kind = model::WakerKind::kThread;
  last.waker.pid = RecordingBuilder::kPid;
  last.waker.tid = 101;
  last.waker.futex_address = 0x1000;
  r.Cpu(100, 85, 110).Cpu(101, 0, 200);
  EXPECT_EQ(Golden(r), "0-10 root on_cpu\n10-80 root gil chunk\n80-85 root run_queue\n85-100 root on_cpu\n");
}

// A collection is gc for the step that set it off; for who waits for the loop or the GIL meanwhile it is what the
// blamed one was doing.
TEST(Ledger, GarbageCollectionIsNamed) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(9, 0, "other", 0, 300, 2).Span(8, 0, "chunk", 0, 300, 3);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 20).Gc(5, 15, 2);
  r.Step(2, 0, 0x90, StepKind::kTimer, 9, 20, 20, 40).Gc(25, 35, 1);
  r.Step(3, 1, 0x10, StepKind::kSoon, 1, 20, 70, 100);
  r.Step(20, 0, 0, StepKind::kExecutor, 8, 0, 0, 200, 101).Gc(45, 60, 0, 101);
  r.Cpu(100, 0, 40);
  auto& gil = r.Wait(100, 40, 40, 68, 70, WaitClass::kGil, Cause::kGil);
  gil.waker.kind = model::WakerKind::kThread;
  gil.waker.pid = RecordingBuilder::kPid;
  gil.waker.tid = 101;
  gil.waker.futex_address = 0x1000;
  r.Cpu(100, 70, 110).Cpu(101, 0, 200);
  EXPECT_EQ(Golden(r),
            "0-5 root on_cpu\n5-15 root gc garbage collector\n15-20 root on_cpu\n20-25 root event_loop other\n"
            "25-35 root event_loop other\n35-40 root event_loop other\n40-45 root gil chunk\n45-60 root gil chunk\n"
            "60-68 root gil chunk\n68-70 root run_queue\n70-100 root on_cpu\n");
  base::LossCounters loss;
  auto pieces = BuildLedgers(r.batch, {}, &loss)[0].pieces;
  EXPECT_EQ(pieces[1].blame.detail, "generation 2, thread 100");
  EXPECT_EQ(pieces[4].evidence, "Python's garbage collector, generation 1");
  EXPECT_EQ(pieces[7].evidence, "Python's garbage collector, generation 0");
}

// A socket read by the loop: the reader's callback runs in its opener's context and is passed through.
TEST(Ledger, SocketReadIsThePeersAndRepairsAreSplit) {
  RecordingBuilder r;
  model::SocketAddress us{2, {10, 0, 0, 1}, 4000}, peer{2, {10, 0, 0, 2}, 8000};
  r.Span(1, 0, "root", 0, 400).Span(9, 0, "opener", 0, 5, 2);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 10);
  r.Step(2, 0, 0, StepKind::kIoRead, 9, 330, 331, 333);
  r.batch.steps.back().fd = 8;
  r.Step(3, 2, 0x10, StepKind::kSoon, 1, 332, 334, 400);
  r.batch.sockets.push_back({RecordingBuilder::kPid, 8, 0, 1, us, peer});
  r.batch.retransmissions.push_back({300'000, us, peer, 1, 200'000, 100'000, 0, 1});
  r.Cpu(100, 0, 10).Cpu(100, 330, 410);
  r.Wait(100, 10, 10, 330, 330, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Golden(r),
            "0-10 root on_cpu\n10-100 root net_recv 10.0.0.2:8000\n100-300 root retransmit 10.0.0.2:8000\n"
            "300-330 root net_recv 10.0.0.2:8000\n330-331 root event_loop event loop\n331-332 root on_cpu\n332-333 "
            "root event_loop opener\n"
            "333-334 root event_loop event loop\n334-400 root on_cpu\n");
}

// A followed peer: the wait for its answer goes on into the threads that made it.
TEST(Ledger, FollowedPeersThreadsAreEntered) {
  constexpr int32_t kPeer = 200;
  RecordingBuilder r;
  model::SocketAddress us{2, {10, 0, 0, 1}, 4000}, peer{2, {10, 0, 0, 2}, 8000};
  r.Span(1, 0, "root", 0, 100).Change(0, 1, 0, 0).Change(100, 0, 1, 0);
  model::ProcessInfo info;
  info.key.pid = kPeer;
  info.comm = "chroma";
  r.batch.processes.push_back(info);
  r.batch.sockets.push_back({kPeer, 5, 0, 2, peer, us});
  auto& wait = r.Wait(100, 0, 10, 90, 90, WaitClass::kSocketRecv, Cause::kNetRecv);
  wait.target.kind = model::TargetKind::kSocket;
  wait.target.local = us;
  wait.target.remote = peer;
  wait.waker.kind = model::WakerKind::kThread;
  wait.waker.pid = kPeer;
  wait.waker.tid = 201;
  r.Cpu(100, 90, 110);
  auto& lock = r.Wait(201, 0, 0, 60, 62, WaitClass::kFutex, Cause::kLock);
  lock.pid = kPeer;
  lock.waker.kind = model::WakerKind::kThread;
  lock.waker.pid = kPeer;
  lock.waker.tid = 202;
  r.Cpu(201, 62, 95);
  r.batch.intervals.back().pid = kPeer;
  auto& poll = r.Wait(202, 0, 0, 20, 20, WaitClass::kPoll, Cause::kNetRecv);
  poll.pid = kPeer;
  auto& disk = r.Wait(202, 20, 30, 50, 50, WaitClass::kDiskRead, Cause::kDiskRead);
  disk.pid = kPeer;
  disk.target.kind = model::TargetKind::kFile;
  std::snprintf(disk.target.name.data(), disk.target.name.size(), "chroma.db");
  r.Cpu(202, 50, 65);
  r.batch.intervals.back().pid = kPeer;
  EXPECT_EQ(Golden(r),
            "0-10 root on_cpu\n10-20 root net_recv chroma\n20-30 root on_cpu chroma\n30-50 root disk_read chroma.db\n"
            "50-60 root on_cpu chroma\n60-62 root run_queue\n62-90 root on_cpu chroma\n90-100 root on_cpu\n");
}

// Two threads help one span: the path follows the one that let the waiting thread go on.
TEST(Ledger, HelpingThreadIsFollowed) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "work", 10, 80);
  r.Change(0, 1, 0, 0).Change(100, 0, 1, 0);
  r.Change(10, 2, 0, 0, 101).Change(80, 0, 2, 0, 101);
  auto& wait = r.Wait(100, 0, 5, 80, 82, WaitClass::kFutex, Cause::kLock);
  wait.waker.kind = model::WakerKind::kThread;
  wait.waker.pid = RecordingBuilder::kPid;
  wait.waker.tid = 101;
  wait.waker.span_id = 2;
  r.Cpu(100, 82, 110);
  auto& fault = r.Wait(101, 10, 30, 60, 60, WaitClass::kPageFault, Cause::kPageFault);
  fault.target.kind = model::TargetKind::kFile;
  std::snprintf(fault.target.name.data(), fault.target.name.size(), "index");
  r.Cpu(101, 60, 90);
  EXPECT_EQ(Golden(r),
            "0-5 root on_cpu\n5-10 root queue helper not begun\n10-30 work on_cpu\n30-60 work page_fault index\n60-80 "
            "work on_cpu\n"
            "80-82 root run_queue\n82-100 root on_cpu\n");
}

TEST(TraceAssembly, RepairsAreCounted) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 77, "orphan", 10, 20).Span(3, 4, "x", 10, 20).Span(4, 3, "y", 11, 19);
  r.Span(1, 0, "root", 0, 100);
  base::LossCounters loss;
  auto ledgers = BuildLedgers(r.batch, {}, &loss);
  ASSERT_EQ(ledgers.size(), 1u);
  EXPECT_EQ(loss.Get(base::Loss::kSpanRepeated), 1u);
  EXPECT_EQ(loss.Get(base::Loss::kSpanParentCycle), 1u);
  EXPECT_EQ(loss.Get(base::Loss::kSpanParentMissing), 2u);
}

TEST(TraceAssembly, AnOrphanHangsUnderTheRootThatEnclosesIt) {
  RecordingBuilder r;
  r.Span(1, 0, "ask", 0, 100)
      .Span(2, 0, "ask", 200, 300)
      .Span(3, 77, "orphan", 210, 220)
      .Span(4, 78, "alone", 400, 450);
  base::LossCounters loss;
  auto ledgers = BuildLedgers(r.batch, {}, &loss);
  ASSERT_EQ(ledgers.size(), 3u);
  EXPECT_EQ(ledgers[1].paths.size(), 2u);
  EXPECT_EQ(ledgers[2].operation, "alone");
  EXPECT_EQ(loss.Get(base::Loss::kSpanParentMissing), 1u);
}

TEST(TraceAssembly, CallsAtOnceFromElsewhereAreRequestsOfTheirOwn) {
  RecordingBuilder r;
  r.Span(1, 91, "ask", 0, 100).Span(2, 92, "ask", 10, 60).Span(3, 2, "step", 20, 30).Span(4, 93, "orphan", 40, 50);
  for (auto& span : r.batch.spans) span.otel_kind = span.name == "ask" ? 2 : 1;
  base::LossCounters loss;
  auto ledgers = BuildLedgers(r.batch, {}, &loss);
  ASSERT_EQ(ledgers.size(), 2u);
  EXPECT_EQ(ledgers[1].duration_ns, 50'000);
  EXPECT_EQ(ledgers[1].paths.size(), 2u);
  EXPECT_EQ(loss.Get(base::Loss::kSpanParentMissing), 1u);
}

TEST(TraceAssembly, ASpanAtAnImpossibleTimeTakesNoRequestAlong) {
  RecordingBuilder r;
  r.Span(9, 0, "broken", 0, 5'000).Span(1, 0, "ask", 1'000, 1'100).Span(2, 1, "step", 1'010, 1'050);
  r.batch.spans.front().time_suspect = true;
  base::LossCounters loss;
  auto ledgers = BuildLedgers(r.batch, {}, &loss);
  ASSERT_EQ(ledgers.size(), 1u);
  EXPECT_EQ(ledgers[0].operation, "ask");
  EXPECT_EQ(model::CheckLaw(ledgers[0]), "");
}

TEST(TraceAssembly, KeptAliveConnectionsContextIsCut) {
  RecordingBuilder r;
  r.Span(1, 0, "ask", 0, 100).Span(2, 1, "ask", 150, 180).Span(3, 2, "step", 160, 170).Span(4, 1, "late", 120, 130);
  for (auto& span : r.batch.spans) span.otel_kind = span.name == "ask" ? 2 : 1;
  base::LossCounters loss;
  auto ledgers = BuildLedgers(r.batch, {}, &loss);
  ASSERT_EQ(ledgers.size(), 2u);
  EXPECT_EQ(ledgers[1].duration_ns, 30'000);
  EXPECT_EQ(ledgers[1].paths.size(), 2u);
  EXPECT_EQ(loss.Get(base::Loss::kSpanContextLeaked), 1u);
}

TEST(TraceAssembly, PathsOfLongNamesTakeLittleMoreThanTheNames) {
  RecordingBuilder r;
  constexpr uint64_t kDeep = 50, kWide = 3000;
  const auto add = [&](uint64_t id, uint64_t parent) {
    r.Span(id, parent, (std::to_string(id) + std::string(1000, 'x')).c_str(), 0, 100'000);
  };
  for (uint64_t id = 1; id <= kDeep; ++id) add(id, id - 1);
  for (uint64_t id = kDeep + 1; id <= kDeep + kWide; ++id) add(id, kDeep);
  base::LossCounters loss;
  auto ledgers = BuildLedgers(r.batch, {}, &loss);
  ASSERT_EQ(ledgers.size(), 1u);
  EXPECT_EQ(model::CheckLaw(ledgers[0]), "");
  size_t bytes = 0;
  for (const auto& path : ledgers[0].paths) {
    for (const std::string& name : path) bytes += name.size();
  }
  EXPECT_LT(bytes, 16 * (kDeep + kWide) * 1100);  // each at its depth: 51 times
  EXPECT_GT(loss.Get(base::Loss::kTraceTooDeep), 0u);
}

TEST(TraceAssembly, TokensThatDoNotAddUpAreASizeAllTheSame) {
  RecordingBuilder r;
  r.Span(1, 0, "ask", 0, 100).Span(2, 1, "llm", 10, 90);
  model::Span& llm = r.batch.spans.back();
  llm.type = model::SpanType::kLlm;
  llm.input_tokens = llm.output_tokens = INT64_MAX;
  base::LossCounters loss;
  EXPECT_GT(BuildLedgers(r.batch, {}, &loss).at(0).size, 1e19);
}

TEST(TraceAssembly, DeepAndLargeTracesKeepTheLaw) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100'000);
  for (uint64_t i = 2; i <= 5000; ++i)
    r.Span(i, i - 1, "deep", static_cast<int64_t>(i / 200), 100'000 - static_cast<int64_t>(i));
  for (uint64_t i = 6000; i < 130'000; ++i) r.Span(i, 1, "wide", 50, 60);
  base::LossCounters loss;
  auto ledgers = BuildLedgers(r.batch, {}, &loss);
  ASSERT_EQ(ledgers.size(), 1u);
  EXPECT_EQ(model::CheckLaw(ledgers[0]), "");
  EXPECT_GT(loss.Get(base::Loss::kTraceTooDeep), 0u);
  EXPECT_GT(loss.Get(base::Loss::kTraceTooLarge), 0u);
}

}  // namespace
}  // namespace tailspan::analyze
