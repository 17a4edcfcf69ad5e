// A program writes its own loop ring and its own spans, so they may say anything: recordings that cannot be, small ones
// at random and large ones of the worst shapes. The law holds, nothing is made up, and none takes long.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "analyze/analyze.h"
#include "analyze/recording_builder.h"

namespace tailspan::analyze {
namespace {

using base::Loss;
using model::Cause;
using model::StepKind;
using model::WaitClass;

std::string Print(const model::TraceLedger& ledger) {
  std::string out;
  for (const model::LedgerPiece& piece : ledger.pieces) {
    out += fmt::format("{}-{} {} {} {}\n", piece.start_ns / 1000, piece.end_ns / 1000, ledger.paths[piece.path].back(),
                       model::CauseName(piece.cause),
                       piece.cause == Cause::kUnexplained ? piece.evidence : piece.blame.name);
  }
  return out;
}

// The first ledger, and how many contradictions were counted.
std::string Explained(const RecordingBuilder& recording) {
  base::LossCounters loss;
  auto ledgers = BuildLedgers(recording.batch, {}, &loss);
  EXPECT_FALSE(ledgers.empty());
  if (ledgers.empty()) return "";
  EXPECT_EQ(model::CheckLaw(ledgers[0]), "");
  EXPECT_LE(Contradictions(loss).size(), 1u);
  return Print(ledgers[0]) + fmt::format("{} contradictions", loss.Get(Loss::kLoopRecordContradicts));
}

// Both claim 40-60. Whose span the thread had then the kernel has read: it is believed.
TEST(Contradictions, StepsThatCrossLeaveWhatBothClaimUnexplained) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 60).Step(2, 1, 0x10, StepKind::kSoon, 1, 30, 40, 100);
  r.Cpu(100, 0, 110);
  EXPECT_EQ(
      Explained(r),
      "0-40 root on_cpu self\n40-60 root unexplained records that contradict each other\n60-100 root on_cpu self\n"
      "1 contradictions");
  r.batch.intervals[0].span_id = 1;
  EXPECT_EQ(Explained(r), "0-100 root on_cpu self\n1 contradictions");
}

TEST(Contradictions, AWakerThatCameLaterIsNotFollowed) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 20).Step(2, 3, 0x10, StepKind::kSoon, 1, 50, 60, 100);
  r.Step(3, 2, 0x20, StepKind::kSoon, 1, 110, 110, 120);
  r.Cpu(100, 0, 130);
  EXPECT_EQ(Explained(r),
            "0-20 root on_cpu self\n20-50 root unexplained no record of who let it go on\n"
            "50-60 root event_loop event loop\n60-100 root on_cpu self\n1 contradictions");
  r.batch.steps[1].waker_step_id = 2;  // itself
  EXPECT_EQ(Explained(r),
            "0-20 root on_cpu self\n20-50 root unexplained no record of who let it go on\n"
            "50-60 root event_loop event loop\n60-100 root on_cpu self\n1 contradictions");
}

// The task's step before ran on another thread and had not ended.
TEST(Contradictions, AStepBeforeThatStillRunsIsNotItsOwn) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 80, 101).Step(2, 0, 0x10, StepKind::kTimer, 1, 50, 60, 100);
  r.Cpu(100, 0, 110).Cpu(101, 0, 110);
  EXPECT_EQ(Explained(r),
            "0-50 root sleep timer\n50-60 root event_loop event loop\n60-100 root on_cpu self\n1 contradictions");
}

// Until the thread's next record nobody knows whose time it is.
TEST(Contradictions, ASpanChangeInAnotherThreadsStepIsNobodys) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "read", 10, 90);
  r.Step(7, 0, 0x70, StepKind::kNewTask, 0, 0, 0, 100, 101);
  r.Change(0, 1, 0, 0).Change(40, 2, 1, 7).Change(60, 1, 2, 0).Change(100, 0, 1, 0).Cpu(100, 0, 110);
  EXPECT_EQ(Explained(r),
            "0-40 root on_cpu self\n40-60 root unexplained no record of who let it go on\n60-100 root on_cpu self\n"
            "1 contradictions");
}

// An eager task's first part runs within its maker's step, a loop of its own within a job: no contradictions.
TEST(Contradictions, AStepWithinAnotherIsNone) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 1, "eager", 20, 45);
  r.Step(1, 0, 0x10, StepKind::kNewTask, 1, 0, 0, 100);
  r.Step(2, 1, 0x20, StepKind::kNewTask, 1, 20, 20, 50).Change(21, 2, 1, 2).Change(45, 1, 2, 2);
  r.batch.steps.back().outer_span_id = 1;
  r.Change(100, 0, 1, 0).Cpu(100, 0, 110);
  EXPECT_EQ(Explained(r), "0-21 root on_cpu self\n21-45 eager on_cpu self\n45-100 root on_cpu self\n0 contradictions");
}

class RandomRecording {
 public:
  explicit RandomRecording(uint32_t seed) : random_(seed) {}

  RecordingBuilder Make() {
    RecordingBuilder r;
    for (uint64_t id = 1; id <= 5; ++id) {
      r.Span(id, Below(3) ? Below(6) : 0, "s", Below(40), 20 + Below(60), 1 + Below(2));
    }
    r.batch.spans[0].parent_id = 0;
    const int64_t steps = Below(14), changes = Below(10);
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t start_us = Below(60);
      r.Step(StepId(), StepId(), Below(4) * 0x10, static_cast<StepKind>(Below(6)), Below(6), Below(70), start_us,
             start_us + Below(30) - 2, 100 + Tid());
      model::LoopStep& step = r.batch.steps.back();
      step.outer_span_id = Below(6);
      step.waker_span_id = Below(6);
      step.site = static_cast<uint16_t>(Below(3));
      if (Below(10) == 0) step.waker_step_id = 0xFFFFull << 48 | static_cast<uint64_t>(100 + Tid());
    }
    for (int64_t i = 0; i < changes; ++i) r.Change(Below(80), Below(6), Below(6), StepId(), 100 + Tid());
    r.Site(1, "queues.py:Queue.put");
    for (int64_t i = Below(4); i > 0; --i) {
      r.batch.polls.push_back({RecordingBuilder::kPid, 100 + Tid(), Us(), Us(), Us(), 1});
    }
    for (int64_t i = Below(3); i > 0; --i) r.Gc(Below(80), Below(80), 1, 100 + Tid());
    for (int64_t i = Below(3); i > 0; --i) r.Hole(Below(80), Below(80), 1 + Below(5), 100 + Tid());
    AddKernel(&r);
    return r;
  }

 private:
  uint64_t Raw(uint64_t limit) { return random_() % limit; }
  int64_t Below(uint64_t limit) { return static_cast<int64_t>(Raw(limit)); }
  int64_t Us() { return Below(80) * 1000; }
  uint64_t StepId() { return Raw(12); }
  int32_t Tid() { return static_cast<int32_t>(Raw(3)); }

  // The kernel's own records do not contradict each other: each thread's follow one another.
  void AddKernel(RecordingBuilder* r) {
    for (int32_t tid = 100; tid < 103; ++tid) {
      int64_t at_us = Below(30);
      while (at_us < 90 && Raw(8)) {
        const int64_t ran_us = Below(12), waits_us = 1 + Below(12),
                      wake_us = Below(static_cast<uint64_t>(waits_us) + 1);
        const int64_t start_us = at_us + ran_us;
        if (Raw(4) == 0) {
          r->Cpu(tid, at_us, start_us + waits_us);
        } else {
          static constexpr std::pair<WaitClass, Cause> kWaits[] = {{WaitClass::kPoll, Cause::kNetRecv},
                                                                   {WaitClass::kFutex, Cause::kLock},
                                                                   {WaitClass::kGil, Cause::kGil},
                                                                   {WaitClass::kPipe, Cause::kIpc},
                                                                   {WaitClass::kStopped, Cause::kStopped}};
          const auto& [wait_class, cause] = kWaits[Raw(std::size(kWaits))];
          auto& wait = r->Wait(tid, at_us, start_us, start_us + wake_us, start_us + waits_us, wait_class, cause);
          wait.waker.kind = model::WakerKind::kThread;
          wait.waker.pid = RecordingBuilder::kPid;
          wait.waker.tid = 100 + Tid();
          wait.waker.span_id = Raw(6);
          wait.waker.futex_address = 0x1000;
        }
        r->batch.intervals.back().span_id = Raw(6);
        at_us = start_us + waits_us + (Raw(5) ? 0 : Below(6));
      }
    }
  }

  std::mt19937 random_;
};

// The microseconds in which the kernel saw any thread run.
std::vector<bool> OnCpu(const model::RecordBatch& batch) {
  std::vector<bool> on_cpu(256, false);
  for (const model::ThreadInterval& interval : batch.intervals) {
    for (int64_t ns = interval.window_start_mono_ns; ns < interval.wait_start_mono_ns; ns += 1000) {
      on_cpu[static_cast<size_t>(ns / 1000)] = true;
    }
  }
  return on_cpu;
}

TEST(Contradictions, NoRecordingBreaksTheLawOrMakesUpWork) {
  RandomRecording random(20);
  uint64_t contradictions = 0, ledgers = 0, explained_ns = 0;
  for (int round = 0; round < 6000; ++round) {
    const RecordingBuilder r = random.Make();
    base::LossCounters loss;
    for (const model::TraceLedger& ledger : BuildLedgers(r.batch, {}, &loss)) {
      ++ledgers;
      ASSERT_EQ(model::CheckLaw(ledger), "") << round;
      const std::vector<bool> on_cpu = OnCpu(r.batch);
      for (const model::LedgerPiece& piece : ledger.pieces) {
        if (piece.cause != Cause::kUnexplained) explained_ns += static_cast<uint64_t>(piece.end_ns - piece.start_ns);
        if (piece.cause != Cause::kOnCpu && piece.cause != Cause::kGc) continue;
        for (int64_t ns = piece.start_ns; ns < piece.end_ns; ns += 1000) {
          ASSERT_TRUE(on_cpu[static_cast<size_t>((ledger.start_unix_ns + ns) / 1000)]) << round;
        }
      }
    }
    ASSERT_EQ(loss.Get(Loss::kLedgerLawBroken), 0u) << round;
    ASSERT_EQ(loss.Get(Loss::kLedgerGap), 0u) << round;
    contradictions += loss.Get(Loss::kLoopRecordContradicts) > 0;
  }
  EXPECT_GT(ledgers, 6000u);
  EXPECT_GT(contradictions, 3000u);
  EXPECT_GT(explained_ns, ledgers * 5000);
}

constexpr int64_t kRecords = 200'000;

// A service as it should be: one request after another, each of 13 records.
RecordingBuilder GoodService() {
  RecordingBuilder r;
  for (int64_t i = 0; i < kRecords / 13; ++i) {
    const int64_t at_us = i * 100;
    const auto id = static_cast<uint64_t>(i) + 1;
    r.Span(10 * id, 0, "ask", at_us, at_us + 95, id).Span(10 * id + 1, 10 * id, "read", at_us + 5, at_us + 90, id);
    r.Step(2 * id, 0, 16 * id, StepKind::kNewTask, 0, at_us, at_us, at_us + 10);
    r.Change(at_us, 10 * id, 0, 2 * id).Change(at_us + 5, 10 * id + 1, 10 * id, 2 * id);
    r.Step(2 * id + 1, 0, 16 * id, StepKind::kTimer, 10 * id + 1, at_us + 80, at_us + 82, at_us + 98);
    r.Change(at_us + 90, 10 * id, 10 * id + 1, 2 * id + 1).Change(at_us + 95, 0, 10 * id, 2 * id + 1);
    for (const int64_t enter_us : {at_us + 10, at_us + 98}) {
      r.batch.polls.push_back({100, 100, enter_us * 1000, (enter_us + 1) * 1000, (enter_us + 1) * 1000, 1});
    }
    r.Wait(100, at_us, at_us + 10, at_us + 80, at_us + 81, WaitClass::kPoll, Cause::kNetRecv);
    r.Wait(100, at_us + 81, at_us + 98, at_us + 99, at_us + 99, WaitClass::kPoll, Cause::kNetRecv);
    r.Cpu(100, at_us + 99, at_us + 100);
  }
  return r;
}

struct Shape {
  const char* name;
  RecordingBuilder (*make)();
};

// Each step crosses all that are open when it begins.
RecordingBuilder Crossing() {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 2 * kRecords);
  for (int64_t i = 0; i < kRecords; ++i) {
    r.Step(static_cast<uint64_t>(i) + 1, static_cast<uint64_t>(i), 0x10, StepKind::kSoon, 1, i, i, i + kRecords);
  }
  return r.Cpu(100, 0, 2 * kRecords);
}

RecordingBuilder Nested() {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 2 * kRecords);
  for (int64_t i = 0; i < kRecords; ++i) {
    r.Step(static_cast<uint64_t>(i) + 1, static_cast<uint64_t>(i), static_cast<uint64_t>(i % 100), StepKind::kSoon, 1,
           0, i, 2 * kRecords - i);
  }
  return r.Cpu(100, 0, 2 * kRecords);
}

// Each was ready from the beginning on and woken by the one before; all have one id in the second half.
RecordingBuilder Chain() {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, kRecords);
  for (int64_t i = 0; i < kRecords; ++i) {
    const auto id = static_cast<uint64_t>(std::min(i, kRecords / 2)) + 1;
    r.Step(id, id - (i < kRecords / 2), 0, static_cast<StepKind>(i % 5), static_cast<uint64_t>(i % 2), 0, i, i + 1);
  }
  return r.Cpu(100, 0, kRecords);
}

// Tasks that were all ready at once, each a request of its own: each waits for all before it.
RecordingBuilder Burst() {
  RecordingBuilder r;
  for (int64_t i = 0; i < kRecords / 2; ++i) {
    const auto id = static_cast<uint64_t>(i) + 1;
    r.Span(id, 0, "ask", 0, i + 1, id).Step(id, 0, id, StepKind::kNewTask, id, 0, i, i + 1);
  }
  return r.Cpu(100, 0, kRecords / 2);
}

// Requests that last from the first to the last moment, all of them in the steps of one task.
RecordingBuilder Crowd() {
  RecordingBuilder r;
  for (int64_t i = 0; i < kRecords / 3; ++i) {
    const auto id = static_cast<uint64_t>(i) + 1;
    r.Span(id, 0, "ask", 0, kRecords, id).Step(id, id - 1, 0x10, StepKind::kSoon, id, 2 * i, 2 * i, 2 * i + 1);
    r.Change(2 * i, id, 0, id);
  }
  return r.Cpu(100, 0, kRecords);
}

// Two threads of one request hand over to each other all the time.
RecordingBuilder PingPong() {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, kRecords).Change(0, 1, 0, 0, 100).Change(0, 1, 0, 0, 101);
  for (int64_t at_us = 0; at_us + 2 <= kRecords; at_us += 2) {
    for (const int32_t tid : {100, 101}) {
      const int64_t start_us = at_us + (tid - 100);
      auto& wait = r.Wait(tid, start_us, start_us + 1, start_us + 2, start_us + 2, WaitClass::kFutex, Cause::kLock);
      wait.waker.kind = model::WakerKind::kThread;
      wait.waker.pid = RecordingBuilder::kPid;
      wait.waker.tid = 201 - tid;
      wait.waker.span_id = 1;
    }
  }
  return r;
}

// Spans that are all open at once and say that they were one thread's, as deep as they may be.
RecordingBuilder OpenSpans() {
  RecordingBuilder r;
  for (int64_t i = 0; i < kRecords / 2; ++i) {
    const auto id = static_cast<uint64_t>(i) + 1;
    r.Span(id, i % 400 ? id - 1 : i ? 1 : 0, "deep", i, 2 * kRecords - i);
    r.batch.spans.back().thread_id = 100;
  }
  for (int64_t at_us = 0; at_us < 2 * kRecords; at_us += 4) r.Cpu(100, at_us, at_us + 4);
  return r;
}

// One long request, and beside it ever again a short one: each time it is the only one anew.
RecordingBuilder Alone() {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, kRecords);
  for (int64_t i = 1; i < kRecords / 3; ++i) {
    const auto id = static_cast<uint64_t>(2 * i);
    r.Span(id, 0, "short", 2 * i, 2 * i + 1, id).Span(id + 1, 1, "child", i, i + 1);
  }
  for (int64_t i = 0; i < kRecords / 3; ++i) r.Cpu(100, 3 * i, 3 * i + 3);
  return r;
}

// One descriptor, registered again and again without a peer.
RecordingBuilder Sockets() {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, kRecords);
  for (int64_t i = 0; i < kRecords / 2; ++i) {
    r.batch.sockets.push_back({RecordingBuilder::kPid, 7, i * 2000, 1, {}, {}, true});
    r.Step(static_cast<uint64_t>(i) + 1, 0, 0x10, StepKind::kIoRead, 1, 2 * i, 2 * i, 2 * i + 1);
    r.batch.steps.back().fd = 7;
  }
  return r.Cpu(100, 0, kRecords);
}

// The time it takes, and that the law holds. CPU time, because the machine may be busy.
double SecondsOf(const RecordingBuilder& recording, const char* name) {
  LedgerOptions options;
  options.pieces_max = 400'000;  // the rule that bounds pieces, at a size that a test can hold
  options.pieces_per_record_max = 2;
  base::LossCounters loss;
  const std::clock_t start = std::clock();
  const auto ledgers = BuildLedgers(recording.batch, options, &loss);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  size_t pieces = 0;
  for (const model::TraceLedger& ledger : ledgers) {
    EXPECT_EQ(model::CheckLaw(ledger), "") << name;
    pieces += ledger.pieces.size();
  }
  EXPECT_LE(pieces, 400'000 + 2 * kRecords + ledgers.size()) << name;
  EXPECT_FALSE(ledgers.empty());
  EXPECT_EQ(loss.Get(Loss::kLedgerLawBroken), 0u) << name;
  EXPECT_EQ(loss.Get(Loss::kLedgerGap), 0u) << name;
  return seconds;
}

TEST(Contradictions, TheWorstShapesTakeNotMuchLongerThanAGoodOne) {
  const double good = std::min(SecondsOf(GoodService(), "good"), SecondsOf(GoodService(), "good"));
  std::string told = fmt::format("good {:.3f} s", good);
  constexpr Shape kShapes[] = {{"crossing", Crossing},    {"nested", Nested}, {"chain", Chain},
                               {"burst", Burst},          {"crowd", Crowd},   {"ping-pong", PingPong},
                               {"open spans", OpenSpans}, {"alone", Alone},   {"sockets", Sockets}};
  for (const Shape& shape : kShapes) {
    const double seconds = SecondsOf(shape.make(), shape.name);
    told += fmt::format(", {} {:.1f}x", shape.name, seconds / good);
    EXPECT_LT(seconds, 10 * good) << shape.name;
  }
  std::printf("%s\n", told.c_str());
}

}  // namespace
}  // namespace tailspan::analyze
