#include "analyze/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tailspan::analyze {
namespace {

using model::BlameKind;
using model::Cause;
using model::TraceLedger;

constexpr double kMs = 1e6;

TraceLedger Start(uint64_t id, const std::string& operation = "op") {
  TraceLedger ledger;
  ledger.trace_id = {1, id};
  ledger.root_id = id;
  ledger.operation = operation;
  ledger.start_unix_ns = static_cast<int64_t>(id) * 1'000'000'000;  // a second apart: no contention
  ledger.paths = {{operation}, {operation, "retrieve"}, {operation, "embed"}};
  return ledger;
}

void Add(TraceLedger* ledger, uint32_t path, Cause cause, double ms, BlameKind kind = BlameKind::kSelf,
         const char* name = "") {
  model::LedgerPiece piece;
  piece.start_ns = ledger->duration_ns;
  piece.end_ns = ledger->duration_ns += static_cast<int64_t>(ms * kMs);
  piece.path = path;
  piece.cause = cause;
  piece.blame.kind = kind;
  piece.blame.name = name;
  piece.blame.how = "by hand";
  piece.blame.confidence = 1;
  piece.join = model::Join::kThreadContext;
  if (piece.end_ns > piece.start_ns) ledger->pieces.push_back(piece);
}

// 1000 requests of 100 ms and a little; every 25th (4 %) waits 500 ms more for `name`, half of them in each span.
std::vector<TraceLedger> WithFault(Cause cause, BlameKind kind, const char* name, int n = 1000) {
  std::vector<TraceLedger> out;
  for (int i = 0; i < n; ++i) {
    TraceLedger ledger = Start(static_cast<uint64_t>(i));
    Add(&ledger, 0, Cause::kOnCpu, 40 + (i * 7 % 11) * 0.1);
    if (i % 25 == 3) Add(&ledger, i % 50 == 3 ? 1 : 2, cause, 500 + i % 7, kind, name);
    Add(&ledger, 1, Cause::kNetRecv, 60 + (i * 5 % 13) * 0.1, BlameKind::kPeer, "chroma");
    out.push_back(std::move(ledger));
  }
  return out;
}

ExplainOptions Options(double quantile, int cpus = 0, const char* operation = "") {
  ExplainOptions options;
  options.quantile = quantile;
  options.cpus = cpus;
  options.operation = operation;
  return options;
}

void ExpectSums(const model::Explanation& e) {
  double typical = e.rest.typical_ns, tail = e.rest.tail_ns, excess = e.rest.excess_ns, share = e.rest.share_of_excess;
  for (const model::Finding& f : e.findings) {
    typical += f.typical_ns;
    tail += f.tail_ns;
    excess += f.excess_ns;
    share += f.share_of_excess;
  }
  EXPECT_NEAR(typical, e.typical_ns, 1e-3);
  EXPECT_NEAR(tail, e.tail_ns, 1e-3);
  EXPECT_NEAR(excess, e.excess_ns, 1e-3);
  if (e.excess_ns > 0) {
    EXPECT_NEAR(share, 1, 1e-9);
  }
}

bool Says(const std::vector<std::string>& lines, const char* text) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const auto& line) { return line.find(text) != std::string::npos; });
}

TEST(Explain, NamesARarePauseAndItsSize) {
  const auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "index.faiss");
  const model::Explanation e = Explain(ledgers, {}).value();
  EXPECT_EQ(e.verdict, model::Verdict::kFault) << e.verdict_reason;
  EXPECT_EQ(e.quantile, 0.99);
  EXPECT_EQ(e.requests_beyond, 10);
  ASSERT_GE(e.findings.size(), 2u);
  const model::Finding& first = e.findings[0];
  EXPECT_EQ(first.cause, Cause::kPageFault);
  EXPECT_EQ(first.blame.name, "index.faiss");
  EXPECT_EQ(first.group_lines, 2) << "two spans wait for the one file";
  EXPECT_NEAR(first.group_excess_ns, 505 * kMs, 5 * kMs);
  EXPECT_EQ(first.typical_ns, 0);
  EXPECT_TRUE(first.is_fault);
  EXPECT_FALSE(e.findings[1].is_fault) << "the same fault is declared once";
  EXPECT_EQ(e.findings[1].group_rank, 1);
  EXPECT_GT(first.group_share_ci95.low, 0.9);
  EXPECT_EQ(first.pattern, "cold-pages");
  ASSERT_TRUE(first.has_what_if);
  EXPECT_NEAR(first.what_if_tail_ns, 102 * kMs, 1 * kMs);
  EXPECT_EQ(first.exemplars.size(), 3u);
  EXPECT_DOUBLE_EQ(e.explained_share_of_tail, 1);
  ExpectSums(e);
}

TEST(Explain, AGilHolderIsAFaultBecauseTheReplayLacksIt) {
  const model::Explanation e = Explain(WithFault(Cause::kGil, BlameKind::kSpan, "chunk"), Options(0, 2)).value();
  EXPECT_EQ(e.verdict, model::Verdict::kFault) << e.verdict_reason;
  EXPECT_EQ(e.findings[0].cause, Cause::kGil);
  EXPECT_EQ(e.findings[0].blame.name, "chunk");
  EXPECT_TRUE(e.replayed);
}

TEST(Explain, WhatNoOneElseIsToBlameForStaysASpanOfItsOwn) {
  const model::Explanation e = Explain(WithFault(Cause::kOnCpu, BlameKind::kSelf, ""), {}).value();
  for (const model::Finding& f : e.findings) EXPECT_EQ(f.group_lines, 1);
  ExpectSums(e);
}

TEST(Explain, HealthyAndInsufficient) {
  std::vector<TraceLedger> ledgers;
  for (uint64_t i = 0; i < 600; ++i) {
    TraceLedger ledger = Start(i);
    Add(&ledger, 0, Cause::kOnCpu, 40 + static_cast<double>(i * 7 % 11));
    ledgers.push_back(std::move(ledger));
  }
  EXPECT_EQ(Explain(ledgers, {}).value().verdict, model::Verdict::kHealthy);
  ledgers.resize(199);
  const model::Explanation few = Explain(ledgers, {}).value();
  EXPECT_EQ(few.verdict, model::Verdict::kInsufficient);
  EXPECT_EQ(few.quantile, 0.95);
  ExpectSums(few);
  ledgers.resize(3);
  EXPECT_EQ(Explain(ledgers, {}).value().verdict, model::Verdict::kInsufficient);
}

TEST(Explain, TooMuchUnexplainedIsNoVerdict) {
  const model::Explanation e = Explain(WithFault(Cause::kUnexplained, BlameKind::kNone, ""), {}).value();
  EXPECT_EQ(e.verdict, model::Verdict::kInsufficient) << e.verdict_reason;
  EXPECT_NEAR(e.unexplained_share, 0.83, 0.02);
  EXPECT_NEAR(e.explained_share_of_tail, 0.17, 0.02);
}

TEST(Explain, FailedRequestsAreNotInTheFigures) {
  auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "f");
  for (TraceLedger& ledger : ledgers) ledger.failed = ledger.duration_ns > 200'000'000;
  const model::Explanation e = Explain(ledgers, {}).value();
  EXPECT_EQ(e.requests, 960);
  EXPECT_EQ(e.errors, 40);
  EXPECT_EQ(e.verdict, model::Verdict::kHealthy);
}

TEST(Explain, ASlowdownOfEveryRequestNeedsABaseline) {
  const auto before = WithFault(Cause::kPageFault, BlameKind::kFile, "f");
  auto after = before;
  for (TraceLedger& ledger : after) Add(&ledger, 2, Cause::kDiskRead, 300, BlameKind::kFile, "db");
  EXPECT_NE(Explain(after, {}).value().findings[0].cause, Cause::kDiskRead);
  ExplainOptions with_baseline = Options(0.9), with_slo;
  with_baseline.baseline = &before;
  with_slo.slo_ms = 120;
  const model::Explanation e = Explain(after, with_baseline).value();
  EXPECT_EQ(e.reference, "baseline");
  EXPECT_EQ(e.findings[0].cause, Cause::kDiskRead);
  EXPECT_EQ(e.verdict, model::Verdict::kFault) << e.verdict_reason;
  ExpectSums(e);
  const model::Explanation slo = Explain(after, with_slo).value();
  EXPECT_DOUBLE_EQ(slo.typical_ns, 120 * kMs);
  ExpectSums(slo);
}

TEST(Explain, TheDisksRequestsAndTheWayOfJoiningAreEvidence) {
  auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "index.faiss");
  std::vector<model::BlockRequest> requests;
  for (TraceLedger& ledger : ledgers) {
    for (model::LedgerPiece& piece : ledger.pieces) {
      if (piece.cause != Cause::kPageFault) continue;
      piece.join = model::Join::kOnlyOpenSpan;
      model::BlockRequest request;
      request.device = 254u << 20;
      request.issue_mono_ns = ledger.start_unix_ns + piece.start_ns + static_cast<int64_t>(100 * kMs);
      request.complete_mono_ns = request.issue_mono_ns + static_cast<int64_t>(50 * kMs);
      requests.push_back(request);
    }
  }
  const DiskWaits disk(requests, base::ClockMap());
  ExplainOptions options;
  options.disk = &disk;
  const model::Explanation e = Explain(ledgers, options).value();
  const model::Finding& first = e.findings.at(0);
  EXPECT_TRUE(
      Says(first.evidence_for, "reads in these waits, median 50 ms from issue to completion, at the device for 10 %"));
  EXPECT_TRUE(
      Says(first.evidence_against, "100 % of it was joined to its span without thread context, by only_open_span"));
  EXPECT_FALSE(Says(Explain(ledgers, {}).value().findings.at(0).evidence_for, "device 254:0"));
  for (const model::Finding& f : e.findings) {
    if (f.cause == Cause::kNetRecv) {
      EXPECT_FALSE(Says(f.evidence_for, "device 254:0"));
    }
  }
}

TEST(Explain, PicksTheOperationWithTheLargestSummedExcess) {
  auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "f");
  for (uint64_t i = 0; i < 300; ++i) {
    ledgers.push_back(Start(5000 + i, "other"));
    Add(&ledgers.back(), 0, Cause::kOnCpu, 10);
  }
  const model::Explanation e = Explain(ledgers, {}).value();
  EXPECT_EQ(e.operation, "op");
  ASSERT_EQ(e.operations.size(), 2u);
  EXPECT_EQ(e.operations[1].operation, "other");
  EXPECT_EQ(Explain(ledgers, Options(0, 0, "other")).value().requests, 300);
  EXPECT_EQ(Explain(ledgers, Options(0, 0, "none")).error().code, base::Code::kNotFound);
  EXPECT_EQ(Explain(ledgers, Options(1)).error().code, base::Code::kInvalidArgument);
}

TEST(Explain, AFewVerySlowRequestsDoNotHideTheOperationWithEnough) {
  auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "f");
  for (uint64_t i = 0; i < 4; ++i) {  // later in sum than all 1000: 200 s
    ledgers.push_back(Start(5000 + i, "admin"));
    Add(&ledgers.back(), 0, Cause::kOnCpu, i < 2 ? 10 : 100'000);
  }
  const model::Explanation e = Explain(ledgers, {}).value();
  EXPECT_EQ(e.operation, "op");
  EXPECT_EQ(e.verdict, model::Verdict::kFault) << e.verdict_reason;
  ASSERT_EQ(e.operations.size(), 2u);
  EXPECT_EQ(e.operations[0].operation, "admin");
  EXPECT_FALSE(e.operations[0].enough_requests);
  EXPECT_TRUE(e.operations[1].enough_requests);
  EXPECT_TRUE(Says(e.notes, "`admin` (4 requests, "));
  const model::Explanation asked = Explain(ledgers, Options(0, 0, "admin")).value();
  EXPECT_EQ(asked.verdict, model::Verdict::kInsufficient);
  EXPECT_FALSE(Says(asked.notes, "later in sum")) << "it was asked for";
}

TEST(Explain, WhereNoOperationHasEnoughTheLatestIsTaken) {
  auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "f", 199);
  for (uint64_t i = 0; i < 4; ++i) {
    ledgers.push_back(Start(5000 + i, "admin"));
    Add(&ledgers.back(), 0, Cause::kOnCpu, i < 2 ? 10 : 100'000);
  }
  const model::Explanation e = Explain(ledgers, {}).value();
  EXPECT_EQ(e.operation, "admin");
  EXPECT_EQ(e.verdict, model::Verdict::kInsufficient);
  EXPECT_FALSE(Says(e.notes, "later in sum"));
}

TEST(Explain, NoRequestIsNotEnoughAndNoError) {
  const model::Explanation none = Explain({}, {}).value();
  EXPECT_EQ(none.verdict, model::Verdict::kInsufficient);
  EXPECT_EQ(none.verdict_reason, "no request has ended; 200 are needed for a verdict");
  EXPECT_EQ(none.requests, 0);
  ExpectSums(none);
  ExplainOptions options = Options(0, 0, "stuck");
  const auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "f");
  EXPECT_EQ(Explain(ledgers, options).error().code, base::Code::kNotFound);
  options.unfinished = 3;
  const model::Explanation stuck = Explain(ledgers, options).value();
  EXPECT_EQ(stuck.verdict, model::Verdict::kInsufficient);
  EXPECT_EQ(stuck.verdict_reason, "no request of stuck has ended; 200 are needed for a verdict");
}

TEST(Explain, TheWhatIfSaysWhatItIsCutTo) {
  const auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "f");
  auto slower = ledgers;
  for (TraceLedger& ledger : slower) Add(&ledger, 2, Cause::kDiskRead, 300, BlameKind::kFile, "db");
  ExplainOptions with_baseline = Options(0.9), with_slo;
  with_baseline.baseline = &ledgers;
  with_slo.slo_ms = 200;
  const model::Finding typical = Explain(slower, {}).value().findings.at(0);
  EXPECT_NE(typical.what_if_how.find("capped at its typical time;"), std::string::npos) << typical.what_if_how;
  EXPECT_TRUE(Says(typical.evidence_for, "of the typical request"));
  const model::Finding slo = Explain(slower, with_slo).value().findings.at(0);
  EXPECT_NE(slo.what_if_how.find("stretched or shrunk to the target;"), std::string::npos) << slo.what_if_how;
  EXPECT_TRUE(Says(slo.evidence_for, "of a typical request stretched or shrunk to the target"));
  const model::Finding baseline = Explain(slower, with_baseline).value().findings.at(0);
  EXPECT_NE(baseline.what_if_how.find("capped at its typical time in the baseline;"), std::string::npos);
  EXPECT_TRUE(Says(baseline.evidence_for, "of the baseline's typical request"));
}

TEST(Explain, APartysNameMayHoldBraces) {
  const model::Explanation e =
      Explain(WithFault(Cause::kGil, BlameKind::kSpan, "chunk {} of {}"), Options(0, 2)).value();
  EXPECT_NE(e.findings[0].fix.find("move `chunk {} of {}` out of this process"), std::string::npos);
  EXPECT_NE(e.verdict_reason.find("held by `chunk {} of {}`"), std::string::npos) << e.verdict_reason;
}

TEST(Explain, WhoIsNotKnownIsSaidInWords) {
  const model::Explanation file = Explain(WithFault(Cause::kPageFault, BlameKind::kNone, ""), {}).value();
  EXPECT_TRUE(Says(file.findings[0].evidence_for, "reads pages of an unidentified file back from disk"));
  EXPECT_EQ(file.findings[0].fix.find("no one"), std::string::npos) << file.findings[0].fix;
  const model::Explanation child = Explain(WithFault(Cause::kChildProcess, BlameKind::kProcess, "pandoc"), {}).value();
  EXPECT_NE(child.verdict_reason.find("waits for a child, process pandoc"), std::string::npos) << child.verdict_reason;
}

// A fault that is spread over so many spans that each is below what is listed: 200 shards of one index.
TEST(Explain, ManySmallLinesOfOneGroupAreOneFault) {
  std::vector<TraceLedger> ledgers;
  for (uint64_t i = 0; i < 1000; ++i) {
    TraceLedger ledger = Start(i);
    for (int shard = 0; shard < 200; ++shard) ledger.paths.push_back({"op", "read shard " + std::to_string(shard)});
    Add(&ledger, 0, Cause::kOnCpu, 40 + static_cast<double>(i * 7 % 11) * 0.1);
    for (uint32_t shard = 0; i % 25 == 3 && shard < 200; ++shard) {
      Add(&ledger, 3 + shard, Cause::kPageFault, 2.5 + static_cast<double>(i % 7) * 0.01, BlameKind::kFile, "index");
    }
    Add(&ledger, 1, Cause::kNetRecv, 60 + static_cast<double>(i * 5 % 13) * 0.1, BlameKind::kPeer, "chroma");
    ledgers.push_back(std::move(ledger));
  }
  const model::Explanation e = Explain(ledgers, {}).value();
  EXPECT_EQ(e.verdict, model::Verdict::kFault) << e.verdict_reason;
  ASSERT_FALSE(e.findings.empty());
  EXPECT_EQ(e.findings[0].cause, Cause::kPageFault);
  EXPECT_NEAR(e.findings[0].group_excess_ns, 505 * kMs, 10 * kMs);
  EXPECT_NEAR(e.findings[0].excess_ns, 2.5 * kMs, 0.1 * kMs) << "the line's own";
  ExpectSums(e);
}

// A line that grows beside one of its group that shrinks: the group's figures are the group's.
TEST(Explain, AListedLinesGroupIsItsOwn) {
  std::vector<TraceLedger> ledgers;
  for (uint64_t i = 0; i < 1000; ++i) {
    const bool slow = i % 25 == 3;
    TraceLedger ledger = Start(i);
    Add(&ledger, 0, Cause::kOnCpu, 40 + static_cast<double>(i * 7 % 11) * 0.1);
    Add(&ledger, slow ? 1 : 2, Cause::kDiskRead, 20, BlameKind::kFile, "db");
    if (slow) Add(&ledger, 1, Cause::kPageFault, 500 + static_cast<double>(i % 7), BlameKind::kFile, "index");
    ledgers.push_back(std::move(ledger));
  }
  const model::Explanation e = Explain(ledgers, {}).value();
  bool found = false;
  for (const model::Finding& f : e.findings) {
    if (f.cause != Cause::kDiskRead) continue;
    found = true;
    EXPECT_NEAR(f.excess_ns, 20 * kMs, 1 * kMs);
    EXPECT_NEAR(f.group_excess_ns, 0, 1 * kMs);
    EXPECT_NEAR(f.group_share_of_excess, 0, 0.01);
    EXPECT_NEAR(f.what_if_tail_ns, e.tail_ns, 1 * kMs);
  }
  EXPECT_TRUE(found);
  ExpectSums(e);
}

TEST(Explain, FailedRequestsAreSaidWhereNoneEndedWell) {
  auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "f", 300);
  for (TraceLedger& ledger : ledgers) ledger.failed = true;
  const model::Explanation e = Explain(ledgers, {}).value();
  EXPECT_EQ(e.verdict, model::Verdict::kInsufficient);
  EXPECT_EQ(e.verdict_reason, "0 requests of op and 300 that failed; 200 are needed for a verdict");
}

TEST(Explain, ATargetThatIsMetIsSaid) {
  ExplainOptions options;
  options.slo_ms = 1000;
  const model::Explanation e = Explain(WithFault(Cause::kPageFault, BlameKind::kFile, "f"), options).value();
  EXPECT_EQ(e.verdict, model::Verdict::kHealthy);
  EXPECT_NE(e.verdict_reason.find("no more than the target of 1.00 s"), std::string::npos) << e.verdict_reason;
}

TEST(Explain, ATraceOfSeveralRequestsIsNamedWithItsRoot) {
  auto ledgers = WithFault(Cause::kPageFault, BlameKind::kFile, "f");
  EXPECT_FALSE(Explain(ledgers, {}).value().findings.at(0).names_root);
  for (TraceLedger& ledger : ledgers) ledger.trace_id = {1, 7};
  const model::Explanation e = Explain(ledgers, {}).value();
  const model::Finding& first = e.findings.at(0);
  EXPECT_EQ(first.exemplars.size(), 1u) << "one trace is one exemplar";
  EXPECT_TRUE(first.names_root);
  const auto at = std::find_if(ledgers.begin(), ledgers.end(),
                               [&](const TraceLedger& ledger) { return ledger.root_id == first.first_exemplar_root; });
  ASSERT_NE(at, ledgers.end());
  EXPECT_GT(at->duration_ns, 500'000'000);
}

TEST(Explain, AnUnknownOperationIsToldWhichThereAre) {
  const auto answer = Explain(WithFault(Cause::kPageFault, BlameKind::kFile, "f"), Options(0, 0, "none"));
  EXPECT_NE(answer.error().message.find("\"op\""), std::string::npos) << answer.error().message;
}

TEST(Explain, PartsSumOnRandomPopulationsAndTheAnswerIsTheSameTwice) {
  std::mt19937_64 rng(11);
  const auto uniform = [&] { return std::uniform_real_distribution<double>(0, 1)(rng); };
  for (int round = 0; round < 20; ++round) {
    std::vector<TraceLedger> ledgers;
    const uint64_t n = 5 + rng() % 700;
    for (uint64_t i = 0; i < n; ++i) {
      TraceLedger ledger = Start(i);
      const uint64_t pieces = 1 + rng() % 12;
      for (uint64_t k = 0; k < pieces; ++k) {
        static constexpr const char* kNames[] = {"a", "b", "c"};
        const double ms = round % 4 == 0 ? 5 : 1 / (0.01 + uniform());  // every fourth: ties everywhere
        Add(&ledger, static_cast<uint32_t>(rng() % 3), static_cast<Cause>(rng() % 26), ms,
            static_cast<BlameKind>(rng() % 10), kNames[rng() % 3]);
      }
      ledger.weight = round % 3 == 0 ? 1 + static_cast<double>(rng() % 10) : 1;
      ledgers.push_back(std::move(ledger));
    }
    const model::Explanation e = Explain(ledgers, {}).value(), again = Explain(ledgers, {}).value();
    ExpectSums(e);
    EXPECT_EQ(e.verdict_reason, again.verdict_reason);
    ASSERT_EQ(e.findings.size(), again.findings.size());
    for (size_t i = 0; i < e.findings.size(); ++i) {
      EXPECT_EQ(e.findings[i].share_ci95.low, again.findings[i].share_ci95.low);
    }
  }
}

}  // namespace
}  // namespace tailspan::analyze
