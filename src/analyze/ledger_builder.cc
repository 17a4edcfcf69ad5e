#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

#include "analyze/analyze.h"
#include "analyze/draft_ledger.h"
#include "analyze/path_walker.h"
#include "analyze/span_join.h"
#include "analyze/twin_spans.h"

namespace tailspan::analyze {
namespace {

using base::Loss;
using model::LedgerPiece;
using model::TraceLedger;

bool SameLine(const LedgerPiece& a, const DraftPiece& b, uint32_t path) {
  return a.path == path && a.cause == b.cause && a.summed == b.summed && a.join == b.join &&
         a.blame.kind == b.blame.kind && a.blame.name == b.blame.name && a.blame.span_id == b.blame.span_id &&
         a.blame.how == b.blame.how && a.blame.detail == b.blame.detail && a.evidence == b.evidence;
}

int64_t NumberAttribute(const model::Span& span, std::string_view key) {
  for (const auto& [name, value] : span.attributes) {
    if (name != key) continue;
    int64_t number = -1;
    auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    return error == std::errc() && end == value.data() + value.size() ? number : -1;
  }
  return -1;
}

// The request's own size, in the first unit that its spans tell: tokens, else bytes of the request's body.
double RequestSize(const Trace& trace) {
  double tokens = 0;  // clients may send any number: their sum must not overflow
  bool known = false;
  for (const SpanNode& node : trace.nodes) {
    if (node.span->type != model::SpanType::kLlm) continue;
    if (node.span->input_tokens < 0 && node.span->output_tokens < 0) continue;
    known = true;
    tokens += static_cast<double>(std::max<int64_t>(0, node.span->input_tokens));
    tokens += static_cast<double>(std::max<int64_t>(0, node.span->output_tokens));
  }
  if (known) return tokens;
  for (std::string_view key : {"http.request.body.size", "http.request_content_length", "tailspan.input.length"}) {
    int64_t bytes = NumberAttribute(*trace.root().span, key);
    if (bytes >= 0) return static_cast<double>(bytes);
  }
  return -1;
}

size_t BytesOf(const std::string& name) { return sizeof name + name.size(); }

// Paths of names from the root down, one entry a distinct path (retries and fan-outs share one); the index of each
// node's path. Deeper than the limit, a node has its ancestor's path; so it has where every span of a large trace has a
// long name of its own, and all its paths would take far more than the spans themselves.
std::vector<uint32_t> NamePaths(const Trace& trace, TraceLedger* ledger, base::LossCounters* loss) {
  constexpr size_t kPathNamesMax = 64;
  constexpr size_t kPathsPerNameMax = 16, kPathsBytesMin = 1 << 20;
  size_t bytes = 0, names_bytes = 0;
  for (const SpanNode& node : trace.nodes) names_bytes += BytesOf(node.span->name);
  const size_t bytes_max = std::max(kPathsBytesMin, kPathsPerNameMax * names_bytes);
  std::vector<size_t> bytes_of_path;
  std::vector<uint32_t> of_node(trace.nodes.size());
  std::map<std::pair<uint32_t, std::string>, uint32_t> seen;
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const SpanNode& node = trace.nodes[i];
    bool is_root = node.parent < 0;
    uint32_t parent = is_root ? 0 : of_node[static_cast<size_t>(node.parent)];
    if (!is_root && ledger->paths[parent].size() >= kPathNamesMax) {
      of_node[i] = parent;
      continue;
    }
    const std::pair<uint32_t, std::string> key{is_root ? UINT32_MAX : parent, node.span->name};
    if (const auto known = seen.find(key); known != seen.end()) {
      of_node[i] = known->second;
      continue;
    }
    const size_t path_bytes = (is_root ? 0 : bytes_of_path[parent]) + BytesOf(node.span->name);
    if (!is_root && bytes + path_bytes > bytes_max) {
      loss->Add(Loss::kTraceTooDeep);
      of_node[i] = parent;
      continue;
    }
    of_node[i] = seen[key] = static_cast<uint32_t>(ledger->paths.size());
    std::vector<std::string> path;
    if (!is_root) path = ledger->paths[parent];
    path.push_back(node.span->name);
    ledger->paths.push_back(std::move(path));
    bytes_of_path.push_back(path_bytes);
    bytes += path_bytes;
  }
  return of_node;
}

// Of those that ledgers are made from.
size_t RecordCount(const model::RecordBatch& batch) {
  return batch.spans.size() + batch.intervals.size() + batch.steps.size() + batch.span_changes.size() +
         batch.polls.size() + batch.gc_pauses.size();
}

TraceLedger ToLedger(const Trace& trace, std::vector<DraftPiece> drafts, base::LossCounters* loss) {
  const model::Span& root = *trace.root().span;
  TraceLedger ledger;
  ledger.trace_id = trace.id;
  ledger.root_id = root.span_id;
  ledger.operation = root.name;
  ledger.start_unix_ns = root.start_unix_ns;
  ledger.duration_ns = trace.duration_ns();
  ledger.failed = root.status == model::SpanStatus::kError || root.status == model::SpanStatus::kCancelled;
  ledger.size = RequestSize(trace);
  std::vector<uint32_t> path_of = NamePaths(trace, &ledger, loss);
  int64_t origin_ns = trace.root().start_mono_ns;
  for (DraftPiece& draft : drafts) {
    uint32_t path = path_of[static_cast<size_t>(draft.node)];
    if (!ledger.pieces.empty() && SameLine(ledger.pieces.back(), draft, path)) {
      ledger.pieces.back().end_ns = draft.end_ns - origin_ns;
      continue;
    }
    LedgerPiece piece;
    piece.start_ns = draft.start_ns - origin_ns;
    piece.end_ns = draft.end_ns - origin_ns;
    piece.span_id = trace.nodes[static_cast<size_t>(draft.node)].span->span_id;
    piece.path = path;
    piece.cause = draft.cause;
    piece.blame = std::move(draft.blame);
    piece.summed = draft.summed;
    piece.join = draft.join;
    piece.evidence = std::move(draft.evidence);
    ledger.pieces.push_back(std::move(piece));
  }
  return ledger;
}

}  // namespace

std::vector<TraceLedger> BuildLedgers(const model::RecordBatch& batch, const LedgerOptions& options,
                                      base::LossCounters* loss) {
  base::ClockMap clock(batch.clock_pairs);
  MergedSpans merged = MergeTwins(batch, loss);
  std::vector<Trace> traces = AssembleTraces(merged.changed ? merged.spans : batch.spans, clock, options, loss);
  Timeline timeline(batch, loss);
  JoinSpansToThreads(traces, &timeline);
  GilTimeline gil(timeline);
  Network network(timeline);
  WalkIndex index{traces, timeline, gil, network, options, loss, {}, {}, {}};
  index.Fill(merged.stands_for);
  std::vector<TraceLedger> out;
  out.reserve(traces.size());
  size_t pieces_left = std::max(options.pieces_max, options.pieces_per_record_max * RecordCount(batch));
  for (size_t i = 0; i < traces.size(); ++i) {
    const size_t pieces_max = std::min(options.pieces_per_trace_max, pieces_left);
    std::vector<DraftPiece> pieces = PathWalker(index, static_cast<int>(i), pieces_max).Walk();
    pieces_left -= std::min(pieces.size(), pieces_left);
    out.push_back(ToLedger(traces[i], std::move(pieces), loss));
    HoldToLaw(&out.back(), loss);
  }
  return out;
}

}  // namespace tailspan::analyze
