// One run that two tracers recorded: LangSmith's own, and OpenTelemetry (LangSmith's OTel mode, or an instrumentation
// of LangChain beside it) in another trace. Here both become one span, so that a request is counted once.
//
// The rule. Where a thread's record carries the ids of an OTLP span and a run's id at once, they are twins. Else two
// spans are twins when they are of one process, have one name (OpenLLMetry's ".workflow", ".task" ...
// left off) and stand equally deep among spans of that name, when they begin and end within kTwinNs of one another,
// when each is the other's nearest by a clear margin, and when the twins of their parents agree. One pair tells that
// two traces belong together: their other spans are looked for within them, equal ones at the same time in their order,
// and late ones by their place: below parents that are twins, the only ones of their name, or as many one after the
// other. The OTLP span stays, since its trace may go on in other services; it takes over what the run adds, and the
// run's id stands for it wherever threads have published that (span_twin). What LangSmith alone has recorded of such a
// trace moves into the OTLP trace. Then a root of one tracer that a thread entered while a span of the other was its
// current one is hung under that span (span_parent_missing). A LangSmith trace that is left, though OTLP spans of its
// root's name, process and time exist, cannot be told from them: it is left out, its requests are counted by OTLP
// (trace_twin_ambiguous).
#pragma once

#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/loss.h"
#include "model/batch.h"

namespace tailspan::analyze {

struct MergedSpans {
  bool changed = false;            // false: the batch's own spans are to be taken, `spans` is empty
  std::vector<model::Span> spans;  // in the batch's order
  // A run that was merged to the span that stays.
  std::unordered_map<model::SpanId, model::SpanId, model::ForeignNumberHash> stands_for;
};

// n log n in the spans, for a bounded number of requests at once. Does nothing when only one tracer has sent.
MergedSpans MergeTwins(const model::RecordBatch& batch, base::LossCounters* loss);

}  // namespace tailspan::analyze
