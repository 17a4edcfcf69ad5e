// One normalised application span: an OTLP span or a LangSmith run, after collect/ has mapped names and ids.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/ids.h"

namespace tailspan::model {

// AI kind of a span, whatever dialect named it (facts: gen_ai.operation.name, openinference.span.kind, run_type, ...).
enum class SpanType : uint8_t {
  kOther,
  kLlm,
  kRetriever,
  kEmbedding,
  kTool,
  kChain,
  kAgent,
  kReranker,
  kPrompt,
  kParser,
  kServer,
  kClient
};
enum class SpanStatus : uint8_t { kUnset, kOk, kError, kCancelled };

struct SpanEvent {
  int64_t time_unix_ns = 0;
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
};

struct Span {
  TraceId trace_id;
  SpanId span_id = 0;
  SpanId parent_id = 0;  // 0: a root
  Uuid uuid;             // the whole run id of a LangSmith run; zero otherwise
  Uuid parent_uuid;
  std::string name;
  std::string service;
  std::string source;     // "otlp", "langsmith", "langsmith-otel"
  int32_t otel_kind = 0;  // 0 unspecified 1 internal 2 server 3 client 4 producer 5 consumer
  SpanType type = SpanType::kOther;
  SpanStatus status = SpanStatus::kUnset;
  bool complete = true;       // false: started, its end has not come; end_unix_ns is 0 then
  bool time_suspect = false;  // end before start, or far in the future; kept, left out of statistics
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  int32_t pid = 0;            // from process.pid / thread.id attributes or the connection; 0 unknown
  uint64_t thread_id = 0;     // thread.id attribute; 0 unknown
  int64_t input_tokens = -1;  // -1 unknown
  int64_t output_tokens = -1;
  std::string model;                                            // response model, else request model
  std::vector<std::pair<std::string, std::string>> attributes;  // normalised names; values as text (JSON for lists)
  std::vector<SpanEvent> events;
  std::string status_message;
};

// What a span takes in memory, roughly: for limits.
inline size_t ApproxBytes(const Span& span) {
  size_t bytes = sizeof span + span.name.size() + span.service.size() + span.status_message.size() + span.model.size();
  auto add = [&bytes](const std::vector<std::pair<std::string, std::string>>& attributes) {
    for (const auto& [key, value] : attributes) bytes += sizeof(std::string) * 2 + key.size() + value.size();
  };
  add(span.attributes);
  for (const SpanEvent& event : span.events) {
    bytes += sizeof event + event.name.size();
    add(event.attributes);
  }
  return bytes;
}

}  // namespace tailspan::model
