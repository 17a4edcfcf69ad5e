// What concerns the recording as a whole, and its spans.
#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
const Table<HostRow>& HostTable() {
  static const auto table = [] {
    Table<HostRow> t("host", "One row a (host, boot). Other tables name it by host_id.");
    t.Number("host_id", "key", TAILSPAN_FIELD(id));
    t.Text("host", "node name", TAILSPAN_FIELD(key.host));
    t.Text("boot", "the kernel's boot id", TAILSPAN_FIELD(key.boot));
    return t;
  }();
  return table;
}

const Table<model::RecordingInfo>& RecordingTable() {
  static const auto table = [] {
    Table<model::RecordingInfo> t("recording", "At most one row: the recording as a whole.");
    t.Host();
    t.Text("tailspan_version", "the program that wrote it", TAILSPAN_FIELD(tailspan_version));
    t.Text("name", "its name", TAILSPAN_FIELD(name));
    t.TextList("command", "the recorded command and its arguments", TAILSPAN_FIELD(command));
    t.Number("start_unix_ns", "when it began, Unix time in ns", TAILSPAN_FIELD(start_unix_ns));
    t.Optional("end_unix_ns", "when it ended, Unix time in ns; NULL: it was cut off", TAILSPAN_FIELD(end_unix_ns), 0);
    t.Map("manifest", "kernel, runtime and options it was made with", TAILSPAN_FIELD(manifest));
    return t;
  }();
  return table;
}

const Table<model::Capability>& CapabilityTable() {
  static const auto table = [] {
    Table<model::Capability> t("capability", "The signals that the host could or could not give.");
    t.Host();
    t.Text("signal", "its name", TAILSPAN_FIELD(signal));
    t.Number("is_on", "whether it was recorded", TAILSPAN_FIELD(on));
    t.Text("reason", "why not; empty when on", TAILSPAN_FIELD(reason));
    t.Text("remedy", "what to do about it; empty when on", TAILSPAN_FIELD(remedy));
    return t;
  }();
  return table;
}

const Table<LossRow>& LossTable() {
  static const auto table = [] {
    Table<LossRow> t("loss", "What was dropped, late or cut, by declared counter.");
    t.Host();
    t.Text("name", "the counter", TAILSPAN_FIELD(name));
    t.Number("count", "how often", TAILSPAN_FIELD(count));
    return t;
  }();
  return table;
}

const Table<base::ClockPair>& ClockPairTable() {
  static const auto table = [] {
    Table<base::ClockPair> t("clock_pair", "Both clocks at one moment: the way from kernel time to span time.");
    t.Host();
    t.Number("mono_ns", "CLOCK_MONOTONIC in ns", TAILSPAN_FIELD(mono_ns));
    t.Number("unix_ns", "Unix time in ns", TAILSPAN_FIELD(unix_ns));
    t.Number("error_ns", "the pair is no better than this, ns", TAILSPAN_FIELD(error_ns));
    return t;
  }();
  return table;
}

const Table<model::Span>& SpanTable() {
  static const auto table = [] {
    Table<model::Span> t("span",
                         "Application spans as they arrived. A span that was sent again, or was open for longer than "
                         "a moment and then ended, stands here again: rows are revisions, the last one of (trace_id, "
                         "span_id, uuid) counts (view span_newest).",
                         {"start_unix_ns", "start_unix_ns", true});
    t.Host();
    t.ProcessStart([](const model::Span& span) { return span.pid; }, [](const model::Span&) { return INT64_MAX; });
    t.Id128("trace_id", "the trace", TAILSPAN_FIELD(trace_id));
    t.SpanIdOf("span_id", "the span, as a number; format('{:016x}', span_id) is its usual form",
               TAILSPAN_FIELD(span_id));
    t.SpanIdOf("parent_id", "the parent span; NULL: a root", TAILSPAN_FIELD(parent_id));
    t.Id128("uuid", "the whole run id of a LangSmith run; NULL otherwise", TAILSPAN_FIELD(uuid));
    t.Id128("parent_uuid", "the parent's run id; NULL otherwise", TAILSPAN_FIELD(parent_uuid));
    t.Text("name", "its name", TAILSPAN_FIELD(name));
    t.Text("service", "the service that sent it", TAILSPAN_FIELD(service));
    t.Text("source", "otlp, langsmith, langsmith-otel", TAILSPAN_FIELD(source));
    t.Number("otel_kind", "0 unspecified 1 internal 2 server 3 client 4 producer 5 consumer",
             TAILSPAN_FIELD(otel_kind));
    t.Enum("type", "AI kind of the span, whatever dialect named it", TAILSPAN_FIELD(type), SpanTypeEnum());
    t.Enum("status", "how it ended", TAILSPAN_FIELD(status), SpanStatusEnum());
    t.Number("complete", "false: it started and its end has not come", TAILSPAN_FIELD(complete));
    t.Number("time_suspect", "true: its times are impossible; left out of statistics", TAILSPAN_FIELD(time_suspect));
    t.Number("start_unix_ns", "start, Unix time in ns", TAILSPAN_FIELD(start_unix_ns));
    t.Optional("end_unix_ns", "end, Unix time in ns; NULL: it has not come", TAILSPAN_FIELD(end_unix_ns), 0);
    t.Optional("pid", "process that made it; NULL unknown", TAILSPAN_FIELD(pid), 0);
    t.Optional("thread_id", "its thread.id attribute; NULL unknown", TAILSPAN_FIELD(thread_id), 0);
    t.Optional("input_tokens", "tokens in; NULL unknown", TAILSPAN_FIELD(input_tokens), -1);
    t.Optional("output_tokens", "tokens out; NULL unknown", TAILSPAN_FIELD(output_tokens), -1);
    t.Text("model", "the model that answered, else the one asked for; empty unknown", TAILSPAN_FIELD(model));
    t.Map("attributes", "normalised names; values as text, lists as JSON", TAILSPAN_FIELD(attributes));
    t.Events("events", "span events; time_unix_ns is Unix time in ns", TAILSPAN_FIELD(events));
    t.Text("status_message", "the error's text", TAILSPAN_FIELD(status_message));
    return t;
  }();
  return table;
}

}  // namespace tailspan::store::duckdb
