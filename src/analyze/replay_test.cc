#include "analyze/replay.h"

#include <gtest/gtest.h>

#include "analyze/replay_steps.h"

namespace tailspan::analyze {
namespace {

using model::BlameKind;
using model::Cause;

constexpr int64_t kMs = 1'000'000;

// A request from "name cause ms" pieces; a contention piece blames the span `who`.
struct Piece {
  const char* span;
  Cause cause;
  int64_t ms;
  const char* who = "";
};

model::TraceLedger Request(int64_t start_ms, std::vector<Piece> pieces) {
  model::TraceLedger ledger;
  ledger.operation = "op";
  ledger.start_unix_ns = start_ms * kMs;
  for (const Piece& p : pieces) {
    model::LedgerPiece piece;
    piece.path = static_cast<uint32_t>(ledger.paths.size());
    ledger.paths.push_back({"op", p.span});
    piece.start_ns = ledger.duration_ns;
    piece.end_ns = ledger.duration_ns += p.ms * kMs;
    piece.cause = p.cause;
    if (*p.who) piece.blame.kind = BlameKind::kSpan;
    piece.blame.name = p.who;
    ledger.pieces.push_back(piece);
  }
  return ledger;
}

double TotalMs(const Replay& replay, size_t i) { return replay.requests[i].total_ns / 1e6; }

const ReplayOptions kUncapped{.cpus = 2, .cap_demands = false};

TEST(Replay, TheLoopServesOneStepAtATime) {
  // Both ready at 0, 10 ms each on the loop: the second waits 10 ms for the first.
  const std::vector<model::TraceLedger> ledgers{
      Request(0, {{"a", Cause::kOnCpu, 10}, {"a", Cause::kEventLoop, 1, "a"}}),
      Request(0, {{"a", Cause::kOnCpu, 10}, {"a", Cause::kNetRecv, 50}, {"a", Cause::kOnCpu, 1}})};
  const Replay replay = ReplayArrivals(ledgers, kUncapped);
  ASSERT_TRUE(replay.complete);
  EXPECT_DOUBLE_EQ(TotalMs(replay, 0), 10);
  EXPECT_DOUBLE_EQ(TotalMs(replay, 1), 10 + 10 + 50 + 1);
  ASSERT_EQ(replay.requests[1].waits.size(), 1u);
  EXPECT_EQ(replay.requests[1].waits[0].kind, WaitKind::kLoop);
  EXPECT_EQ(replay.names[replay.requests[1].waits[0].name], "a");
  EXPECT_DOUBLE_EQ(replay.requests[1].waits[0].ns, 10e6);
}

TEST(Replay, WithoutLoopOrGilTheCpusAreTheServers) {
  std::vector<model::TraceLedger> ledgers;
  for (int i = 0; i < 3; ++i) ledgers.push_back(Request(0, {{"a", Cause::kOnCpu, 3}}));
  const Replay replay = ReplayArrivals(ledgers, kUncapped);  // two CPUs, three requests, one slice each
  EXPECT_DOUBLE_EQ(TotalMs(replay, 0), 3);
  EXPECT_DOUBLE_EQ(TotalMs(replay, 1), 3);
  EXPECT_DOUBLE_EQ(TotalMs(replay, 2), 6);
  EXPECT_EQ(replay.requests[2].waits.at(0).kind, WaitKind::kCpu);
}

TEST(Replay, TheGilIsPassedOnEveryFiveMilliseconds) {
  const std::vector<model::TraceLedger> ledgers{Request(0, {{"chunk", Cause::kOnCpu, 20}}),
                                                Request(1, {{"a", Cause::kGil, 1, "chunk"}, {"a", Cause::kOnCpu, 4}})};
  const Replay replay = ReplayArrivals(ledgers, kUncapped);
  EXPECT_DOUBLE_EQ(TotalMs(replay, 1), 4 + 4) << "waits from 1 to 5, then runs 4";
  EXPECT_DOUBLE_EQ(TotalMs(replay, 0), 24);
  EXPECT_EQ(replay.requests[1].waits.at(0).kind, WaitKind::kGil);
  EXPECT_EQ(replay.names[replay.requests[1].waits[0].name], "chunk");
}

TEST(Replay, ALockIsHeldWhileItsSpanIsAtWorkOrWaits) {
  const std::vector<model::TraceLedger> ledgers{
      Request(0, {{"tokenize", Cause::kOnCpu, 2}, {"tokenize", Cause::kNetRecv, 30}}),
      Request(1, {{"tokenize", Cause::kLock, 31, "tokenize"}, {"tokenize", Cause::kOnCpu, 2}})};
  const Replay replay = ReplayArrivals(ledgers, kUncapped);
  EXPECT_DOUBLE_EQ(TotalMs(replay, 1), 31 + 2);
  EXPECT_EQ(replay.requests[1].waits.at(0).kind, WaitKind::kLock);
}

TEST(Replay, TheExecutorHasAsManyWorkersAsWereSeenAtOnce) {
  std::vector<model::TraceLedger> ledgers{
      Request(0, {{"job", Cause::kQueue, 0 + 1, "job"}, {"job", Cause::kSleep, 10}}),
      Request(0, {{"job", Cause::kQueue, 1, "job"}, {"job", Cause::kSleep, 10}}),
      Request(0, {{"job", Cause::kQueue, 11, "job"}, {"job", Cause::kSleep, 10}})};
  for (auto& ledger : ledgers) ledger.paths = {{"op", "job"}, {"op", "job"}};
  EXPECT_EQ(PlanReplay(ledgers, kUncapped).slots[kServerExecutor], 2);
  const Replay replay = ReplayArrivals(ledgers, kUncapped);
  EXPECT_DOUBLE_EQ(TotalMs(replay, 0), 10);
  EXPECT_DOUBLE_EQ(TotalMs(replay, 2), 20);
}

TEST(Replay, CapsTheRareLongStepAndKeepsOrdinaryOnes) {
  std::vector<model::TraceLedger> ledgers;
  for (int i = 0; i < 100; ++i) ledgers.push_back(Request(i * 1000, {{"a", Cause::kOnCpu, 5}}));
  ledgers.push_back(Request(500, {{"chunk", Cause::kOnCpu, 300}}));
  ledgers[50] = Request(50'000, {{"a", Cause::kOnCpu, 400}});
  const Replay capped = ReplayArrivals(ledgers, {.cpus = 2});
  EXPECT_DOUBLE_EQ(TotalMs(capped, 0), 5);
  EXPECT_DOUBLE_EQ(TotalMs(capped, 50), 5) << "P90 of its own step";
  EXPECT_DOUBLE_EQ(TotalMs(capped, 100), 5) << "a rare step: P90 of all steps";
  EXPECT_DOUBLE_EQ(TotalMs(ReplayArrivals(ledgers, kUncapped), 100), 300);
}

TEST(Replay, NothingButContentionTakesNoTime) {
  const Replay replay = ReplayArrivals({Request(0, {{"a", Cause::kRunQueue, 5}})}, kUncapped);
  ASSERT_TRUE(replay.complete);
  EXPECT_EQ(TotalMs(replay, 0), 0);
  EXPECT_TRUE(ReplayArrivals({}, kUncapped).complete);
}

}  // namespace
}  // namespace tailspan::analyze
