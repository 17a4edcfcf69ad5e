// Which requests the ids mean that people copy from LangSmith: of a trace, or of any run in one.
//
// A run that OpenTelemetry recorded too goes by the OTLP trace's id in the ledgers (twin_spans.h), and a run below the
// root has no ledger of its own, so neither id names a ledger. LangSmith's OTel mode sends only the first half of a
// run's id, which other runs may share: then there are several requests.
#pragma once

#include <compare>
#include <vector>

#include "analyze/analyze.h"
#include "model/batch.h"

namespace tailspan::analyze {

struct RequestKey {
  model::TraceId trace_id;
  model::SpanId root_id = 0;
  auto operator<=>(const RequestKey&) const = default;
};

struct RunLookup {
  std::vector<RequestKey> requests;         // those that have ledgers; in order, each once
  std::vector<model::TraceId> recorded_in;  // the traces as they came in which the id occurs; in order, each once
};

// Assembles the traces once more: for a question about one id, not for each.
RunLookup FindRun(const model::RecordBatch& batch, const LedgerOptions& options, model::Uuid id);

}  // namespace tailspan::analyze
