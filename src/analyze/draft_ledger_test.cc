#include "analyze/draft_ledger.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

namespace tailspan::analyze {
namespace {

using model::Cause;

DraftPiece Piece(int64_t start_ns, int64_t end_ns, Cause cause = Cause::kOnCpu) {
  DraftPiece piece;
  piece.start_ns = start_ns;
  piece.end_ns = end_ns;
  piece.cause = cause;
  return piece;
}

std::string Print(const std::vector<DraftPiece>& pieces) {
  std::string out;
  for (const DraftPiece& piece : pieces) {
    out += fmt::format("{}-{} {}\n", piece.start_ns, piece.end_ns, model::CauseName(piece.cause));
  }
  return out;
}

TEST(DraftLedger, PiecesThatMeetAreKept) {
  DraftLedger draft(100, 200, 10);
  draft.Add(Piece(150, 200));
  draft.Add(Piece(100, 150, Cause::kSleep));
  EXPECT_TRUE(draft.done());
  EXPECT_EQ(Print(draft.Take()), "100-150 sleep\n150-200 on_cpu\n");
  EXPECT_EQ(draft.gaps(), 0u);
}

TEST(DraftLedger, TimeLeftOutIsUnexplainedAndCounted) {
  DraftLedger draft(100, 200, 10);
  draft.Add(Piece(160, 190));
  draft.Add(Piece(120, 150, Cause::kSleep));
  EXPECT_EQ(Print(draft.Take()),
            "100-120 unexplained\n120-150 sleep\n150-160 unexplained\n160-190 on_cpu\n190-200 unexplained\n");
  EXPECT_EQ(draft.gaps(), 3u);
}

TEST(DraftLedger, NoTimeIsToldTwiceOrOutside) {
  DraftLedger draft(100, 200, 10);
  draft.Add(Piece(150, 300));
  draft.Add(Piece(160, 190, Cause::kSleep));  // told already
  draft.Add(Piece(140, 170, Cause::kLock));   // in part
  draft.Add(Piece(140, 140, Cause::kLock));   // nothing
  draft.Add(Piece(145, 120, Cause::kLock));   // less than nothing
  draft.Add(Piece(0, 140, Cause::kGil));
  draft.Add(Piece(0, 90, Cause::kLock));  // before the start
  EXPECT_EQ(Print(draft.Take()), "100-140 gil\n140-150 lock\n150-200 on_cpu\n");
  EXPECT_EQ(draft.gaps(), 0u);
}

TEST(DraftLedger, BeyondTheLimitAllTheRestIsOnePiece) {
  DraftLedger draft(0, 100, 2);
  for (int64_t at_ns = 100; at_ns > 0; at_ns -= 10) draft.Add(Piece(at_ns - 10, at_ns));
  EXPECT_TRUE(draft.cut());
  const auto pieces = draft.Take();
  EXPECT_EQ(Print(pieces), "0-80 unexplained\n80-90 on_cpu\n90-100 on_cpu\n");
  EXPECT_EQ(pieces[0].evidence, "more pieces than a ledger may have");
  EXPECT_EQ(draft.gaps(), 0u);
}

TEST(DraftLedger, TheLawHoldsWhateverIsAdded) {
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {
    DraftLedger draft(20, 80, 1 + random() % 8);
    for (auto left = random() % 12; left > 0; --left) {
      draft.Add(Piece(static_cast<int64_t>(random() % 100), static_cast<int64_t>(random() % 100)));
    }
    int64_t at_ns = 20;
    for (const DraftPiece& piece : draft.Take()) {
      EXPECT_EQ(piece.start_ns, at_ns);
      EXPECT_GT(piece.end_ns, piece.start_ns);
      at_ns = piece.end_ns;
    }
    EXPECT_EQ(at_ns, 80);
  }
}

TEST(HoldToLaw, ABrokenLedgerBecomesOneUnexplainedPieceThatSaysSo) {
  model::TraceLedger ledger;
  ledger.operation = "ask";
  ledger.root_id = 7;
  ledger.duration_ns = 100;
  ledger.paths = {{"ask"}, {"ask", "read"}};
  ledger.pieces.resize(2);
  ledger.pieces[0].end_ns = 40;
  ledger.pieces[1].start_ns = 50;
  ledger.pieces[1].end_ns = 100;
  base::LossCounters loss;
  HoldToLaw(&ledger, &loss);
  EXPECT_EQ(model::CheckLaw(ledger), "");
  ASSERT_EQ(ledger.pieces.size(), 1u);
  EXPECT_EQ(ledger.pieces[0].cause, Cause::kUnexplained);
  EXPECT_EQ(ledger.pieces[0].span_id, 7u);
  EXPECT_EQ(ledger.pieces[0].evidence, "the pieces found do not add up: piece 1 starts at 50, not at 40");
  EXPECT_EQ(loss.Get(base::Loss::kLedgerLawBroken), 1u);
  HoldToLaw(&ledger, &loss);  // it keeps the law now
  EXPECT_EQ(loss.Get(base::Loss::kLedgerLawBroken), 1u);
}

}  // namespace
}  // namespace tailspan::analyze
