// The ledger pass' result.
#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
const Table<model::TraceLedger>& TraceTable() {
  static const auto table = [] {
    Table<model::TraceLedger> t("trace", "One row a request: the root of a trace and what its ledger is about.",
                                {"start_unix_ns", "start_unix_ns", true});
    t.Host();
    t.Ledger();
    t.Text("operation", "the root's name", TAILSPAN_FIELD(operation));
    t.Number("start_unix_ns", "the root's start, Unix time in ns", TAILSPAN_FIELD(start_unix_ns));
    t.Number("duration_ns", "the root's duration, ns", TAILSPAN_FIELD(duration_ns));
    t.Number("failed", "error or cancelled: a population of its own", TAILSPAN_FIELD(failed));
    t.Number("weight", "inverse sampling probability", TAILSPAN_FIELD(weight));
    t.Number("revision", "how often the ledger was made anew, for late spans", TAILSPAN_FIELD(revision));
    t.Optional("size", "the request's own size: tokens, else bytes, else documents; NULL unknown", TAILSPAN_FIELD(size),
               -1.0);
    return t;
  }();
  return table;
}

const Table<PathRow>& TracePathTable() {
  static const auto table = [] {
    Table<PathRow> t("trace_path", "The span paths of a trace: names from the root down.");
    t.Host();
    t.Ledger();
    t.Number("path", "index within the trace", TAILSPAN_FIELD(path));
    t.TextList("names", "span names from the root down", TAILSPAN_FIELD(names));
    return t;
  }();
  return table;
}

const Table<model::LedgerPiece>& TracePieceTable() {
  static const auto table = [] {
    Table<model::LedgerPiece> t("trace_piece",
                                "The ledger: pieces that cover [0, duration_ns) of the root without gap or overlap.");
    t.Host();
    t.Ledger();
    t.Number("start_ns", "start, ns from the root's start", TAILSPAN_FIELD(start_ns));
    t.Number("end_ns", "end, ns from the root's start", TAILSPAN_FIELD(end_ns));
    t.SpanIdOf("span_id", "the span that this time belongs to", TAILSPAN_FIELD(span_id));
    t.Number("path", "its span path: index in table trace_path", TAILSPAN_FIELD(path));
    t.Enum("cause", "why the time went by", TAILSPAN_FIELD(cause), CauseEnum());
    t.Enum("blame_kind", "who is to blame: the kind", TAILSPAN_FIELD(blame.kind), BlameKindEnum());
    t.Text("blame_name", "the part that is the same from request to request", TAILSPAN_FIELD(blame.name));
    t.Text("blame_detail", "the exact one", TAILSPAN_FIELD(blame.detail));
    t.Text("blame_how", "how it is known", TAILSPAN_FIELD(blame.how));
    t.Number("blame_confidence", "0 to 1", TAILSPAN_FIELD(blame.confidence));
    t.Id128("blame_trace_id", "the other request, when the blamed one is a span; NULL otherwise",
            TAILSPAN_FIELD(blame.trace_id));
    t.SpanIdOf("blame_span_id", "the blamed span; NULL otherwise", TAILSPAN_FIELD(blame.span_id));
    t.Number("summed", "the kernel gave only a sum for a small window that holds this piece", TAILSPAN_FIELD(summed));
    t.Enum("joined_by", "how the piece was joined to its span", TAILSPAN_FIELD(join), JoinEnum());
    t.Text("evidence", "what the blamed one was doing, when the wait ends here", TAILSPAN_FIELD(evidence));
    return t;
  }();
  return table;
}

}  // namespace tailspan::store::duckdb
