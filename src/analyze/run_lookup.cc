#include "analyze/run_lookup.h"

#include <algorithm>
#include <unordered_set>

#include "analyze/trace_assembly.h"
#include "analyze/twin_spans.h"

namespace tailspan::analyze {
namespace {

template <typename T>
void SortOnce(std::vector<T>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

bool IsHalfKnown(const model::Span& span) { return span.source == "langsmith-otel" && !span.uuid; }

}  // namespace

RunLookup FindRun(const model::RecordBatch& batch, const LedgerOptions& options, model::Uuid id) {
  RunLookup out;
  if (!id) return out;  // what no run has
  std::unordered_set<model::Uuid, model::IdHash> runs;
  bool half_known = false;
  for (const model::Span& span : batch.spans) {
    const bool is_half = IsHalfKnown(span) && span.span_id == id.hi;
    if (span.trace_id != id && span.uuid != id && !is_half) continue;
    if (span.uuid) runs.insert(span.uuid);
    half_known |= is_half;
    out.recorded_in.push_back(span.trace_id);
  }
  SortOnce(&out.recorded_in);
  if (runs.empty() && !half_known) return out;
  base::LossCounters counted_before;
  const base::ClockMap clock(batch.clock_pairs);
  const MergedSpans merged = MergeTwins(batch, &counted_before);
  const auto& spans = merged.changed ? merged.spans : batch.spans;
  for (const Trace& trace : AssembleTraces(spans, clock, options, &counted_before)) {
    const bool holds = std::any_of(trace.nodes.begin(), trace.nodes.end(), [&](const SpanNode& node) {
      const model::Span& span = *node.span;
      return runs.contains(span.uuid) || (half_known && IsHalfKnown(span) && span.span_id == id.hi);
    });
    if (holds) out.requests.push_back({trace.id, trace.root().span->span_id});
  }
  SortOnce(&out.requests);
  return out;
}

}  // namespace tailspan::analyze
