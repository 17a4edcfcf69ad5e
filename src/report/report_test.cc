#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/json_writer.h"
#include "report/json.h"
#include "report/names.h"
#include "report/rounding.h"
#include "report/text.h"
#include "report/trace.h"

namespace tailspan::report {
namespace {

model::Finding Line(int rank, model::Cause cause, const char* span, model::BlameKind kind, const char* name,
                    double typical_ms, double tail_ms, double share) {
  model::Finding f;
  f.rank = f.group_rank = rank;
  f.cause = cause;
  f.span = span;
  f.span_path = {"POST /ask", span};
  f.blame.kind = kind;
  f.blame.name = name;
  f.blame.how = "gil release timeline";
  f.blame.confidence = 0.97;
  f.typical_ns = typical_ms * 1e6;
  f.tail_ns = tail_ms * 1e6;
  f.excess_ns = f.tail_ns - f.typical_ns;
  f.share_of_excess = f.group_share_of_excess = share;
  f.share_of_shortfall = f.group_share_of_shortfall = share + 0.05;
  f.group_share_ci95 = f.share_ci95 = {share - 0.05, share + 0.05};
  return f;
}

model::Explanation Example() {
  model::Explanation e;
  e.file = "rag.duckdb";
  e.operation = "POST /ask";
  e.requests = 4000;
  e.errors = 12;
  e.requests_beyond = 40;
  e.verdict = model::Verdict::kFault;
  e.verdict_reason = "gil: `retrieve` waits for the GIL, held by `chunk`";
  e.typical_ns = 81e6;
  e.tail_ns = 912e6;
  e.excess_ns = 831e6;
  e.shortfall_ns = 1.2e9;
  e.tail_ci95_ns = {880e6, 951e6};
  e.explained_share_of_tail = 0.988;
  e.unexplained_share = 0.012;
  e.cpu_book = {12'000'000'000, 12'240'000'000, 120'000'000};
  e.join = {{"thread_context", 0.981}, {"overlap", 0.007}};
  e.loss = {{"ring_buffer_full", 3}};
  e.capabilities = {{"sched_switch", true, "", ""}, {"gpu", false, "no NVIDIA driver", "install CUPTI"}};
  model::Finding gil = Line(1, model::Cause::kGil, "retrieve", model::BlameKind::kSpan, "chunk", 1.2, 509, 0.61);
  gil.is_fault = gil.has_what_if = true;
  gil.what_if_tail_ns = 404e6;
  gil.what_if_ci95_ns = {371e6, 446e6};
  gil.pattern = "gil-holder";
  gil.fix = "move `chunk` out";
  gil.exemplars = {{1, 2}};
  gil.evidence_for = {"large in 38 of 40"};
  gil.evidence_against = {"none"};
  gil.missing = {"which function"};
  e.findings = {gil, Line(2, model::Cause::kNetRecv, "retrieve", model::BlameKind::kPeer, "chroma", 60, 300, 0.29)};
  e.rest.span = "rest";
  e.rest.typical_ns = e.typical_ns - 61.2e6;
  e.rest.tail_ns = e.tail_ns - 809e6;
  e.rest.excess_ns = e.rest.tail_ns - e.rest.typical_ns;
  e.rest.share_of_excess = 0.1;
  return e;
}

TEST(Rounding, KeepsTheSum) {
  EXPECT_EQ(RoundToTotal({1.5, 1.5, 1}, 4), (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(RoundToTotal({0.4, 0.4, 0.2}, 1), (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(RoundToTotal({-0.6, 2.6}, 2), (std::vector<int64_t>{-1, 3}));
  EXPECT_TRUE(RoundToTotal({}, 0).empty());
  for (int total = -3; total < 50; ++total) {
    const auto parts = RoundToTotal({total * 0.37, total * 0.21, total * 0.42}, total);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), total);
  }
}

TEST(Wrap, IndentsAndCutsByCharacters) {
  EXPECT_EQ(WrapText("  Fix: ", "a bb ccc", 12), "  Fix: a bb\n       ccc");
  EXPECT_EQ(FitText("größe", 4, false), "grö…");
  EXPECT_EQ(FitText("a\x1b[31m", 9, true), "a [31m   ") << "a span's name cannot colour the terminal";
}

TEST(Text, AnswersFirst) {
  const std::string text = RenderText(Example());
  const std::string want =
      "FAULT  POST /ask: P99 is 912 ms, typical 81 ms\n"
      "  gil: `retrieve` waits for the GIL, held by `chunk`\n"
      "  Without it P99 would be 404 ms (371 ms to 446 ms).\n"
      "  Fix: move `chunk` out.\n"
      "\n"
      "  From the typical request to P99          typical       P99       more   share\n"
      "! gil           retrieve <- `chunk`         1.2 ms    509 ms    +508 ms    61 %  ██████████\n"
      "  net_recv      retrieve <- peer chroma      60 ms    300 ms    +240 ms    29 %  █████\n"
      "  rest, below 1 % each                       20 ms    103 ms     +83 ms    10 %  ██\n"
      "  sum                                        81 ms    912 ms    +831 ms   100 %\n"
      "  4000 requests, 12 errors; 40 beyond P99 (95 %: 880 ms to 951 ms), on average 1.20 s\n";
  EXPECT_EQ(text.substr(0, want.size()), want);
  EXPECT_NE(text.find("look     tailspan explain rag.duckdb --trace 00000000000000010000000000000002"),
            std::string::npos);
  EXPECT_NE(text.find("CPU time: 12.0 s measured, +1.0 % in the scheduler's own book"), std::string::npos);
  EXPECT_NE(text.find("Lost: ring_buffer_full 3 ("), std::string::npos);
  EXPECT_NE(text.find("Off:  gpu: no NVIDIA driver; install CUPTI"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(RenderText(Example(), {.colour = true, .width = 100}).find("\x1b[1;31mFAULT"), std::string::npos);
}

TEST(Text, NoLineIsWiderThanAsked) {
  model::Explanation e = Example();
  e.file = "r";
  e.operation = std::string(70, 'o');
  e.findings[0].group_lines = 4;
  e.findings[0].span = "SELECT id, text FROM documents WHERE collection = $1 AND version = $2 ORDER BY score LIMIT 20";
  e.findings[1].span = std::string(300, 'x');
  for (const size_t width : {kTextWidthMin, size_t{100}, size_t{160}}) {
    const std::string text = RenderText(e, {.colour = false, .width = width});
    size_t columns = 0;
    for (const char c : text) {
      columns = c == '\n' ? 0 : columns + ((static_cast<unsigned char>(c) & 0xC0) != 0x80);
      ASSERT_LE(columns, width) << text;
    }
  }
}

TEST(Text, NoControlCodeOfAWatchedProgramReachesTheTerminal) {
  const std::string evil =
      "a\x1b[31m\nb\xff\x9b\xc2\x9b"
      "c\td";
  model::Explanation e = Example();
  e.operation = e.verdict_reason = evil;
  for (model::Finding& f : e.findings) {
    f.span = f.blame.name = f.blame.detail = f.fix = evil;
    f.span_path = {evil, evil};
    f.group_lines = 2;
    f.evidence_for = f.evidence_against = f.missing = {evil};
  }
  e.notes = {evil};
  e.operations = {{evil, 1, 0, false}, {evil, 2, 0, true}};
  const std::string text = RenderText(e);
  EXPECT_EQ(base::ToUtf8(text), text);
  for (const char c : text) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << text;
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos) << "an 8-bit escape";
  size_t lines_of_it = 0;
  for (size_t at = 0; (at = text.find("\nb", at)) != std::string::npos; ++at) ++lines_of_it;
  EXPECT_EQ(lines_of_it, 0u) << "no line of the answer is the program's own";
}

TEST(Text, SharesThatSayNothing) {
  model::Explanation e = Example();
  e.findings[1].share_of_excess = -0.002;
  EXPECT_EQ(RenderText(e).find("-0 %"), std::string::npos);
  e.reference = "slo";  // a target that is met: nothing is shared out
  e.typical_ns = 1e9;
  e.excess_ns = e.tail_ns - e.typical_ns;
  for (model::Finding& f : e.findings) f.share_of_excess = 0;
  e.rest.share_of_excess = 0;
  const std::string text = RenderText(e);
  EXPECT_EQ(text.find("100 %"), std::string::npos) << text;
}

TEST(Names, TheCommandCanBePasted) {
  model::Explanation e = Example();
  model::Finding f = e.findings[0];
  e.file = "it's mine.duckdb";
  EXPECT_EQ(ReproduceCommand(e, f), "tailspan explain 'it'\\''s mine.duckdb' --trace 00000000000000010000000000000002");
  e.file = "-r.duckdb";
  f.names_root = true;
  f.first_exemplar_root = 255;
  EXPECT_EQ(ReproduceCommand(e, f),
            "tailspan explain ./-r.duckdb --trace 00000000000000010000000000000002/00000000000000ff");
}

TEST(Text, WithoutRequestsOnlyTheVerdict) {
  model::Explanation e;
  e.operation = "op";
  e.verdict_reason = "3 requests of op; 200 are needed for a verdict";
  EXPECT_EQ(RenderText(e).substr(0, 72), "NOT ENOUGH DATA  op\n  3 requests of op; 200 are needed for a verdict\n\n");
}

TEST(Text, AnOperationWithTooFewRequestsIsNamedAsSuch) {
  model::Explanation e = Example();
  e.operations = {{"admin", 2, 200e9, false}, {"POST /ask", 4000, 41e9, true}};
  const std::string text = RenderText(e);
  EXPECT_NE(text.find("Operations: admin (2 requests, too few for a verdict, 200.0 s late in sum); POST"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("too few", text.find("POST", text.find("Operations:"))), std::string::npos) << text;
  EXPECT_NE(
      RenderJson(e).find(R"("operation":"admin","requests":2,"excess_total_ns":200000000000,"enough_requests":false)"),
      std::string::npos);
}

TEST(Text, WithoutAnOperationOnlyTheVerdict) {
  model::Explanation e;
  e.verdict_reason = "no spans were received";
  EXPECT_EQ(RenderText(e), "NOT ENOUGH DATA\n  no spans were received\n\n");
}

TEST(Text, TheWhatIfSaysWhatItIsCutTo) {
  model::Explanation e = Example();
  e.reference = "slo";
  EXPECT_NE(RenderText(e).find("\n  Cut to its part of the target, P99 would be 404 ms ("), std::string::npos);
  e.reference = "baseline";
  e.findings[0].is_fault = false;
  e.verdict = model::Verdict::kHealthy;
  EXPECT_NE(RenderText(e).find("what if  cut to its time in the baseline, P99 would be 404 ms ("), std::string::npos);
}

TEST(Json, FollowsTheContract) {
  const std::string json = RenderJson(Example());
  for (
      const char* part :
      {R"({"schema":"tailspan.explanation/1","source":{"file":"rag.duckdb","from_unix_ns":0,"to_unix_ns":0})",
       R"("operation":"POST /ask","requests":4000,"errors":12,"unfinished":0,"quantile":0.99,"typical_quantile":0.5)",
       R"("verdict":"fault")",
       R"("latency_ns":{"typical":81000000,"tail":912000000,"excess":831000000,"tail_ci95":[880000000,951000000])",
       R"("rank":1,"cause":"gil","span":"retrieve","span_path":["POST /ask","retrieve"])",
       R"("blame":{"kind":"span","name":"chunk","detail":"","how":"gil release timeline","confidence":0.97})",
       R"("typical_ns":1200000,"tail_ns":509000000,"excess_ns":507800000)",
       R"("share_of_excess":0.61,"share_ci95":[0.56,0.66])",
       R"("what_if":{"tail_ns":404000000,"ci95":[371000000,446000000])", R"("what_if":null)",
       R"("exemplars":["00000000000000010000000000000002"])",
       R"("rest":{"typical_ns":19800000,"tail_ns":103000000,"excess_ns":83200000)", R"("loss":{"ring_buffer_full":3})",
       R"("cpu_book":{"measured_ns":12000000000,"scheduler_ns":12240000000,"preemption_ns":120000000,"difference":0.01})",
       R"("capabilities":{"sched_switch":true,"gpu":false})", R"("manifest":{})"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << "\nin " << json;
  }
}

TEST(Json, IntegersAddUpWhateverTheFractions) {
  model::Explanation e = Example();
  e.findings.clear();
  e.typical_ns = 1000;
  e.tail_ns = 2000;
  for (int i = 0; i < 3; ++i) {
    e.findings.push_back(Line(i + 1, model::Cause::kGil, "s", model::BlameKind::kSpan, "c", 0, 0, 0));
    e.findings.back().typical_ns = 1000.0 / 3;
    e.findings.back().tail_ns = 2000.0 / 3;
  }
  e.rest = {};
  const std::string json = RenderJson(e);
  EXPECT_NE(json.find(R"("typical_ns":334,"tail_ns":667,"excess_ns":333)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("typical_ns":333,"tail_ns":666,"excess_ns":333)"), std::string::npos) << json;
}

model::TraceLedger TraceExample() {
  model::TraceLedger ledger;
  ledger.trace_id = {1, 2};
  ledger.root_id = 5;
  ledger.operation = "POST /ask";
  ledger.duration_ns = 100'000'000;
  ledger.paths = {{"POST /ask"}, {"POST /ask", "chain", "retrieve"}};
  const auto add = [&](int64_t to_ms, uint32_t path, model::Cause cause, model::BlameKind kind, const char* name) {
    model::LedgerPiece piece;
    piece.start_ns = ledger.pieces.empty() ? 0 : ledger.pieces.back().end_ns;
    piece.end_ns = to_ms * 1'000'000;
    piece.path = path;
    piece.span_id = 7;
    piece.cause = cause;
    piece.blame.kind = kind;
    piece.blame.name = name;
    ledger.pieces.push_back(piece);
  };
  add(10, 0, model::Cause::kOnCpu, model::BlameKind::kSelf, "");
  add(60, 1, model::Cause::kGil, model::BlameKind::kSpan, "chunk");
  add(90, 1, model::Cause::kNetRecv, model::BlameKind::kPeer, "chroma");
  ledger.pieces.back().summed = true;
  add(100, 0, model::Cause::kUnexplained, model::BlameKind::kNone, "");
  return ledger;
}

TEST(Trace, JsonCoversTheRequest) {
  const std::string json = RenderTraceJson(TraceExample());
  for (const char* part :
       {R"({"schema":"tailspan.trace/1","trace_id":"00000000000000010000000000000002","root":"POST /ask")",
        R"("duration_ns":100000000)",
        R"({"start_ns":0,"end_ns":10000000,"span_id":"0000000000000007","span":"POST /ask")",
        R"("span":"retrieve","span_path":["POST /ask","chain","retrieve"],"cause":"net_recv")", R"("placed":"summed")",
        R"("start_ns":90000000,"end_ns":100000000)"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part << "\nin " << json;
  }
}

TEST(Trace, TextShowsTreeAndLanes) {
  const std::string text = RenderTraceText(TraceExample());
  EXPECT_NE(text.find("G gil                50 ms  50.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("    chain                                 0 ns ....."), std::string::npos) << text;
  EXPECT_NE(text.find("      retrieve                           80 ms .....GGGGGGGGGGGGGGGGGGGGGGGGGGnnnnnnnnnnnnnnnn"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("retrieve <- `chunk`"), std::string::npos);
  EXPECT_NE(text.find("60 ms     30 ms~ net_recv"), std::string::npos) << text;
}

TEST(Trace, ChildrenStandBelowTheirParent) {
  model::TraceLedger ledger = TraceExample();
  ledger.paths = {{"root"}, {"root", "a"}, {"root", "b"}, {"root", "a", "late"}};
  for (size_t i = 0; i < 4; ++i) ledger.pieces[i].path = static_cast<uint32_t>(i);
  const std::string text = RenderTraceText(ledger);
  const std::string tree = text.substr(text.find("Spans on"), text.find("at      took") - text.find("Spans on"));
  const size_t a = tree.find("    a "), late = tree.find("      late"), b = tree.find("    b ");
  EXPECT_LT(tree.find("  root"), a) << text;
  EXPECT_LT(a, late) << text;
  EXPECT_LT(late, b) << text;
  ASSERT_NE(b, std::string::npos) << text;
}

// The tree costs each path once: pieces of deep spans take no longer than others.
TEST(Trace, ManyPiecesOfDeepSpans) {
  const auto took = [](size_t depth) {
    model::TraceLedger ledger = TraceExample();
    ledger.paths.assign(2, std::vector<std::string>(depth, "a span whose name is not so short"));
    ledger.paths[1].back() = "another span whose name is as long";
    ledger.duration_ns = 100'000;
    ledger.pieces.clear();
    for (int64_t i = 0; i < ledger.duration_ns; ++i) {
      model::LedgerPiece piece;
      piece.start_ns = i;
      piece.end_ns = i + 1;
      piece.path = static_cast<uint32_t>(i % 2);
      piece.cause = model::Cause::kOnCpu;
      ledger.pieces.push_back(piece);
    }
    const auto start = std::chrono::steady_clock::now();
    const std::string text = RenderTraceText(ledger);
    const auto elapsed = std::chrono::steady_clock::now() - start;
    EXPECT_NE(text.find("another span"), std::string::npos);
    EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 200) << "pieces of one length are not all shown";
    return elapsed;
  };
  EXPECT_LT(took(64), 10 * took(2) + std::chrono::milliseconds(200));
}

}  // namespace
}  // namespace tailspan::report
