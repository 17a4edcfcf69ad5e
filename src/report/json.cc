#include "report/json.h"

#include <cmath>

#include "base/json_writer.h"
#include "report/names.h"
#include "report/rounding.h"

namespace tailspan::report {
namespace {

using base::JsonWriter;
using model::Explanation;
using model::Finding;

int64_t Ns(double ns) { return std::llround(ns); }
double Share(double share) { return std::round(share * 1e6) / 1e6; }

void WriteRange(JsonWriter* w, const char* key, const model::Range& range, bool ns) {
  w->Key(key).BeginArray();
  ns ? w->Int(Ns(range.low)).Int(Ns(range.high)) : w->Double(Share(range.low)).Double(Share(range.high));
  w->EndArray();
}

void WriteStrings(JsonWriter* w, const char* key, const std::vector<std::string>& strings) {
  w->Key(key).BeginArray();
  for (const std::string& text : strings) w->String(text);
  w->EndArray();
}

void WriteGroup(JsonWriter* w, const Finding& f) {
  w->Key("group").BeginObject();
  w->Key("rank").Int(f.group_rank).Key("lines").Int(f.group_lines).Key("excess_ns").Int(Ns(f.group_excess_ns));
  w->Key("share_of_excess").Double(Share(f.group_share_of_excess));
  WriteRange(w, "share_ci95", f.group_share_ci95, false);
  w->Key("share_of_shortfall").Double(Share(f.group_share_of_shortfall));
  WriteRange(w, "shortfall_ci95", f.group_shortfall_ci95, false);
  w->EndObject();
}

void WriteFinding(JsonWriter* w, const Explanation& e, const Finding& f, int64_t typical_ns, int64_t tail_ns) {
  w->BeginObject();
  w->Key("rank").Int(f.rank).Key("cause").String(model::CauseName(f.cause)).Key("span").String(f.span);
  WriteStrings(w, "span_path", f.span_path);
  w->Key("blame").BeginObject();
  w->Key("kind").String(model::BlameKindName(f.blame.kind)).Key("name").String(f.blame.name);
  w->Key("detail").String(f.blame.detail).Key("how").String(f.blame.how);
  w->Key("confidence").Double(Share(f.blame.confidence)).EndObject();
  w->Key("typical_ns").Int(typical_ns).Key("tail_ns").Int(tail_ns).Key("excess_ns").Int(tail_ns - typical_ns);
  w->Key("shortfall_ns").Int(Ns(f.shortfall_ns));
  w->Key("share_of_excess").Double(Share(f.share_of_excess));
  WriteRange(w, "share_ci95", f.share_ci95, false);
  w->Key("share_of_shortfall").Double(Share(f.share_of_shortfall));
  WriteRange(w, "shortfall_ci95", f.shortfall_ci95, false);
  w->Key("fault").Bool(f.is_fault).Key("suspect").Bool(f.is_suspect).Key("grows_with_size").Bool(f.grows_with_size);
  WriteGroup(w, f);
  w->Key("tail_requests_hit").Int(f.tail_requests_hit);
  w->Key("other_requests_hit_share").Double(Share(f.other_requests_hit));
  w->Key("what_if");
  if (f.has_what_if) {
    w->BeginObject().Key("tail_ns").Int(Ns(f.what_if_tail_ns));
    WriteRange(w, "ci95", f.what_if_ci95_ns, true);
    w->Key("how").String(f.what_if_how).EndObject();
  } else {
    w->Null();
  }
  WriteStrings(w, "evidence_for", f.evidence_for);
  WriteStrings(w, "evidence_against", f.evidence_against);
  WriteStrings(w, "missing", f.missing);
  w->Key("pattern").String(f.pattern).Key("fix").String(f.fix).Key("phase").String(f.phase);
  w->Key("function").String(f.function);
  w->Key("exemplars").BeginArray();
  for (const model::TraceId& id : f.exemplars) w->String(model::ToHex(id));
  w->EndArray();
  w->Key("reproduce").String(ReproduceCommand(e, f));
  w->EndObject();
}

void WriteFindings(JsonWriter* w, const Explanation& e, int64_t typical, int64_t tail) {
  std::vector<double> typical_parts, tail_parts;
  for (const Finding& f : e.findings) {
    typical_parts.push_back(f.typical_ns);
    tail_parts.push_back(f.tail_ns);
  }
  typical_parts.push_back(e.rest.typical_ns);
  tail_parts.push_back(e.rest.tail_ns);
  const std::vector<int64_t> typical_ns = RoundToTotal(typical_parts, typical),
                             tail_ns = RoundToTotal(tail_parts, tail);
  w->Key("findings").BeginArray();
  for (size_t i = 0; i < e.findings.size(); ++i) WriteFinding(w, e, e.findings[i], typical_ns[i], tail_ns[i]);
  w->EndArray();
  w->Key("rest").BeginObject();
  w->Key("typical_ns").Int(typical_ns.back()).Key("tail_ns").Int(tail_ns.back());
  w->Key("excess_ns").Int(tail_ns.back() - typical_ns.back());
  w->Key("shortfall_ns").Int(Ns(e.rest.shortfall_ns));
  w->Key("share_of_excess").Double(Share(e.rest.share_of_excess));
  w->Key("share_of_shortfall").Double(Share(e.rest.share_of_shortfall)).EndObject();
}

void WriteContext(JsonWriter* w, const Explanation& e) {
  w->Key("explained_share_of_tail").Double(Share(e.explained_share_of_tail));
  w->Key("unexplained_share").Double(Share(e.unexplained_share));
  w->Key("unblamed_share").Double(Share(e.unblamed_share)).Key("summed_share").Double(Share(e.summed_share));
  w->Key("cpu_book").BeginObject().Key("measured_ns").Int(e.cpu_book.measured_ns);
  w->Key("scheduler_ns").Int(e.cpu_book.scheduler_ns).Key("preemption_ns").Int(e.cpu_book.preemption_ns);
  w->Key("difference").Double(Share(e.cpu_book.difference())).EndObject();
  w->Key("bootstrap").BeginObject().Key("block_length").Int(e.block_length).EndObject();
  w->Key("replay").BeginObject().Key("known").Bool(e.replayed);
  w->Key("contention_excess_ns").Int(Ns(e.replay_contention_ns)).EndObject();
  w->Key("operations").BeginArray();
  for (const model::OperationSummary& o : e.operations) {
    w->BeginObject().Key("operation").String(o.operation).Key("requests").Int(o.requests);
    w->Key("excess_total_ns").Int(Ns(o.excess_total_ns)).Key("enough_requests").Bool(o.enough_requests).EndObject();
  }
  w->EndArray();
  w->Key("join").BeginObject();
  for (const auto& [way, share] : e.join) w->Key(way).Double(Share(share));
  w->EndObject().Key("loss").BeginObject();
  for (const auto& [name, n] : e.loss) w->Key(name).Uint(n);
  w->EndObject().Key("capabilities").BeginObject();
  for (const model::Capability& c : e.capabilities) w->Key(c.signal).Bool(c.on);
  w->EndObject().Key("capabilities_off").BeginArray();
  for (const model::Capability& c : e.capabilities) {
    if (c.on) continue;
    w->BeginObject().Key("signal").String(c.signal).Key("reason").String(c.reason);
    w->Key("remedy").String(c.remedy).EndObject();
  }
  w->EndArray().Key("manifest").BeginObject();
  for (const auto& [key, value] : e.manifest) w->Key(key).String(value);
  w->EndObject();
  WriteStrings(w, "notes", e.notes);
}

}  // namespace

std::string RenderJson(const Explanation& e) {
  const int64_t typical = Ns(e.typical_ns), tail = Ns(e.tail_ns);
  JsonWriter w;
  w.BeginObject().Key("schema").String("tailspan.explanation/1");
  w.Key("source").BeginObject().Key("file").String(e.file);
  w.Key("from_unix_ns").Int(e.from_unix_ns).Key("to_unix_ns").Int(e.to_unix_ns).EndObject();
  w.Key("operation")
      .String(e.operation)
      .Key("requests")
      .Int(e.requests)
      .Key("errors")
      .Int(e.errors)
      .Key("unfinished")
      .Int(e.unfinished);
  w.Key("quantile").Double(e.quantile).Key("typical_quantile").Double(e.typical_quantile);
  w.Key("reference").String(e.reference).Key("requests_beyond").Int(e.requests_beyond);
  w.Key("verdict").String(VerdictName(e.verdict)).Key("verdict_reason").String(e.verdict_reason);
  w.Key("verdict_rule").String(e.verdict_rule);
  w.Key("latency_ns").BeginObject().Key("typical").Int(typical).Key("tail").Int(tail).Key("excess").Int(tail - typical);
  WriteRange(&w, "tail_ci95", e.tail_ci95_ns, true);
  w.Key("shortfall").Int(Ns(e.shortfall_ns)).EndObject();
  WriteFindings(&w, e, typical, tail);
  WriteContext(&w, e);
  w.EndObject();
  return w.text();
}

}  // namespace tailspan::report
