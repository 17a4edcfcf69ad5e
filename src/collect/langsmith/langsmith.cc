#include "collect/langsmith/langsmith.h"

#include <unordered_map>
#include <utility>

#include "base/json_writer.h"
#include "collect/langsmith/multipart.h"
#include "collect/text.h"

namespace tailspan::collect::langsmith {
namespace {

using base::Loss;
using model::Uuid;

constexpr char kJson[] = "application/json";

http::Response Answer(int status, std::string_view message) {
  base::JsonWriter json;
  json.BeginObject().Key(status < 400 ? "message" : "detail").String(message).EndObject();
  return {status, kJson, json.text()};
}

http::Response Refuse(const base::Error& error) {
  return Answer(error.code == base::Code::kResourceExhausted ? 413 : 400, error.message);
}

bool IsJson(std::string_view content_type) {
  std::string lower = Lower(content_type);
  // A client that names no type sends JSON here: Python's batch call does.
  return lower.empty() || lower.find("json") != std::string::npos;
}

}  // namespace

Api::Api(const Limits& limits, bool keep_content, const std::string& version, base::LossCounters& loss)
    : limits_(limits),
      version_(version),
      loss_(loss),
      reader_(limits, keep_content, loss),
      table_(limits, keep_content, loss) {}

bool Api::Serves(std::string_view path) { return path == "/info" || path == "/runs" || path.substr(0, 6) == "/runs/"; }

http::Response Api::Handle(const http::Request& request, std::string_view path, int32_t sender_pid, int64_t now_mono_ns,
                           std::vector<model::Span>* spans) {
  now_mono_ns_ = now_mono_ns;
  sender_pid_ = sender_pid;
  if (path == "/info") return request.method == "GET" ? Info() : Answer(405, "use GET");
  http::Response answer;
  if (path == "/runs/multipart" && request.method == "POST") {
    answer = MultipartRuns(request);
  } else if (path == "/runs/batch" && request.method == "POST") {
    answer = BatchRuns(request);
  } else if (path == "/runs" && request.method == "POST") {
    answer = OneRun(request, true, {});
  } else if (path.substr(0, 6) == "/runs/" && request.method == "PATCH") {
    answer = OneRun(request, false, path.substr(6));
  } else {
    return Answer(404, "this endpoint receives runs; it does not serve " + request.method + " " + std::string(path));
  }
  if (answer.status >= 400) loss_.Add(answer.status == 413 ? Loss::kBodyTooLarge : Loss::kBodyInvalid);
  table_.TakeReady(now_mono_ns, spans);
  return answer;
}

// Python indexes four of batch_ingest_config's fields without looking: all six or none.
http::Response Api::Info() const {
  base::JsonWriter json;
  json.BeginObject().Key("version").String("tailspan " + version_);
  json.Key("instance_flags").BeginObject();
  json.Key("zstd_compression_enabled").Bool(true).Key("gzip_body_enabled").Bool(true);
  json.EndObject().Key("batch_ingest_config").BeginObject();
  json.Key("use_multipart_endpoint").Bool(true);
  json.Key("size_limit").Int(100);
  json.Key("size_limit_bytes").Int(20'971'520);
  json.Key("scale_up_nthreads_limit").Int(16);
  json.Key("scale_up_qsize_trigger").Int(1000);
  json.Key("scale_down_nempty_trigger").Int(4);
  json.EndObject().EndObject();
  return {200, kJson, json.text()};
}

http::Response Api::MultipartRuns(const http::Request& request) {
  if (Lower(request.content_type).compare(0, 19, "multipart/form-data") != 0) {
    return Answer(415, "send multipart/form-data");
  }
  Multipart multipart = SplitMultipart(request.body, BoundaryOf(request.content_type), limits_.parts);
  // The parts of one run follow one another as a rule; the newest update of the same run and kind takes the next part.
  std::vector<Run> updates;
  for (const Part& part : multipart.parts) {
    if (!TakePart(part.name, part.data, &updates)) loss_.Add(Loss::kBodyInvalid);
  }
  for (Run& run : updates) Apply(std::move(run));
  if (!multipart.whole) return Answer(400, multipart.problem);
  return Answer(202, "accepted");
}

// False when the part is damaged; parts of other things than runs are passed over.
bool Api::TakePart(std::string_view name, std::string_view data, std::vector<Run>* updates) {
  size_t dot = name.find('.');
  std::string_view kind = name.substr(0, dot);
  bool post = kind == "post";
  if ((!post && kind != "patch") || dot == std::string_view::npos) return kind == "feedback" || kind == "attachment";
  std::string_view rest = name.substr(dot + 1);
  size_t field_dot = rest.find('.');
  auto id = model::TraceIdFromText(rest.substr(0, field_dot));
  if (!id || !*id) {
    if (field_dot == std::string_view::npos) loss_.Add(Loss::kSpanRejected);
    return false;
  }
  if (updates->empty() || updates->back().id != *id || updates->back().posted != post) {
    updates->emplace_back();
    updates->back().id = *id;
    updates->back().posted = post;
  }
  Run& run = updates->back();
  if (field_dot != std::string_view::npos) return reader_.Field(rest.substr(field_dot + 1), data, &run);
  auto json = reader_.parser().Parse(data);
  return json.ok() && reader_.Object(*json, &run);
}

void Api::Apply(Run&& run) {
  run.sender_pid = sender_pid_;
  table_.Apply(std::move(run), now_mono_ns_);
}

bool Api::TakeObject(Json json, bool post, Uuid id) {
  Run run;
  run.id = id;
  run.posted = post;
  if (!reader_.Object(json, &run)) return false;
  if (!run.id) {
    loss_.Add(Loss::kSpanRejected);
    return true;
  }
  Apply(std::move(run));
  return true;
}

http::Response Api::BatchRuns(const http::Request& request) {
  if (!IsJson(request.content_type)) return Answer(415, "send application/json");
  auto json = reader_.parser().Parse(request.body);
  if (!json.ok()) return Refuse(json.error());
  for (bool post : {true, false}) {
    simdjson::dom::array runs;
    if (Member(*json, post ? "post" : "patch").get_array().get(runs)) continue;
    for (Json run : runs) {
      if (!TakeObject(run, post, {})) loss_.Add(Loss::kBodyInvalid);
    }
  }
  return Answer(202, "accepted");
}

http::Response Api::OneRun(const http::Request& request, bool post, std::string_view id_text) {
  if (!IsJson(request.content_type)) return Answer(415, "send application/json");
  Uuid id;
  if (!post) {
    auto parsed = model::TraceIdFromText(id_text);
    if (!parsed || !*parsed) {
      loss_.Add(Loss::kSpanRejected);
      return Answer(400, "the run id is no UUID");
    }
    id = *parsed;
  }
  auto json = reader_.parser().Parse(request.body);
  if (!json.ok()) return Refuse(json.error());
  if (!TakeObject(*json, post, id)) return Answer(400, "the run is no JSON object");
  return Answer(post ? 201 : 200, "accepted");
}

}  // namespace tailspan::collect::langsmith
