// Trace assembly: spans in any order -> one tree a root. Repairs what real clients send: repeated spans, parents that
// never came, several roots, circles of parents, trees too deep or too large. Every repair is counted.
#pragma once

#include <cstdint>
#include <vector>

#include "analyze/analyze.h"
#include "base/clock.h"
#include "base/loss.h"
#include "model/span.h"

namespace tailspan::analyze {

struct SpanNode {
  const model::Span* span = nullptr;
  int parent = -1;  // index into Trace::nodes; -1 for the root
  std::vector<int> children;
  int64_t start_mono_ns = 0;
  int64_t end_mono_ns = 0;
  bool adopted = false;  // its own parent never came; it hangs here by time, with less confidence
};

// nodes[0] is the root; a parent stands before its children. Times are on the monotonic clock.
struct Trace {
  model::TraceId id;
  std::vector<SpanNode> nodes;

  const SpanNode& root() const { return nodes.front(); }
  int64_t duration_ns() const { return root().end_mono_ns - root().start_mono_ns; }
};

// Traces ordered by their root's start. `spans` must outlive the result. A trace whose root is incomplete or has an
// impossible time is left out.
std::vector<Trace> AssembleTraces(const std::vector<model::Span>& spans, const base::ClockMap& clock,
                                  const LedgerOptions& options, base::LossCounters* loss);

}  // namespace tailspan::analyze
