// Starts a receiver, prints its port, then each span that it receives as one JSON line; ends when standard input does,
// with one last line of the loss counters. A test program: tests/collect/clients drives real clients against it.
#include <cstdio>
#include <iostream>
#include <mutex>

#include "base/json_writer.h"
#include "base/loss.h"
#include "collect/receiver.h"

namespace {

using tailspan::base::JsonWriter;
using tailspan::model::Span;

const char* const kTypes[] = {"other", "llm",      "retriever", "embedding", "tool",   "chain",
                              "agent", "reranker", "prompt",    "parser",    "server", "client"};
const char* const kStatuses[] = {"unset", "ok", "error", "cancelled"};

std::string Line(const Span& span) {
  JsonWriter json;
  json.BeginObject();
  json.Key("trace_id").String(ToHex(span.trace_id)).Key("span_id").String(tailspan::model::ToHex(span.span_id));
  json.Key("parent_id").String(span.parent_id ? tailspan::model::ToHex(span.parent_id) : "");
  json.Key("uuid").String(span.uuid ? ToUuidText(span.uuid) : "");
  json.Key("name").String(span.name).Key("service").String(span.service).Key("source").String(span.source);
  json.Key("otel_kind").Int(span.otel_kind).Key("type").String(kTypes[static_cast<size_t>(span.type)]);
  json.Key("status").String(kStatuses[static_cast<size_t>(span.status)]);
  json.Key("status_message").String(span.status_message);
  json.Key("complete").Bool(span.complete).Key("time_suspect").Bool(span.time_suspect);
  json.Key("start_unix_ns").Int(span.start_unix_ns).Key("end_unix_ns").Int(span.end_unix_ns);
  json.Key("pid").Int(span.pid).Key("thread_id").Uint(span.thread_id);
  json.Key("input_tokens").Int(span.input_tokens).Key("output_tokens").Int(span.output_tokens);
  json.Key("model").String(span.model).Key("attributes").BeginObject();
  for (const auto& [key, value] : span.attributes) json.Key(key).String(value);
  json.EndObject().Key("events").BeginArray();
  for (const auto& event : span.events) json.String(event.name);
  json.EndArray().EndObject();
  return json.text();
}

}  // namespace

int main(int argc, char** argv) {
  tailspan::collect::ReceiverOptions options;
  options.version = "test";
  options.keep_content = argc > 1 && std::string(argv[1]) == "--keep-content";
  auto receiver = tailspan::collect::Receiver::Start(options, [](std::vector<Span>&& spans) {
    for (const Span& span : spans) std::puts(Line(span).c_str());
    std::fflush(stdout);
  });
  if (!receiver.ok()) {
    std::fprintf(stderr, "%s\n", receiver.error().message.c_str());
    return 1;
  }
  std::printf("{\"port\":%d}\n", (*receiver)->port());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  (*receiver)->Drain();
  (*receiver)->Stop();
  JsonWriter json;
  json.BeginObject().Key("loss").BeginObject();
  for (const auto& [name, count] : tailspan::base::LossCounters::Global().NonZero()) json.Key(name).Uint(count);
  json.EndObject().EndObject();
  std::puts(json.text().c_str());
  return 0;
}
