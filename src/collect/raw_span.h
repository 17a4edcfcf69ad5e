// A span as a decoder found it, before names are mapped: what OTLP protobuf, OTLP JSON and LangSmith runs have in
// common.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/span.h"

namespace tailspan::collect {

struct Value {
  enum class Kind { kText, kBool, kInt, kDouble, kJson };
  Kind kind = Kind::kText;
  std::string text;  // always set: the value as text; JSON for arrays and objects
  int64_t integer = 0;
  double number = 0;  // also set for kInt

  static Value Text(std::string value);
  static Value Json(std::string value);
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Double(double value);
};

using Attribute = std::pair<std::string, Value>;

struct RawEvent {
  int64_t time_unix_ns = 0;
  std::string name;
  std::vector<Attribute> attributes;
};

struct RawSpan {
  std::string trace_id;  // bytes as they came; checked by the normaliser's caller
  std::string span_id;
  std::string parent_id;
  std::string name;
  int32_t kind = 0;
  uint64_t start_unix_ns = 0;
  uint64_t end_unix_ns = 0;
  std::vector<Attribute> attributes;
  std::vector<RawEvent> events;
  int32_t status_code = 0;  // 0 unset, 1 ok, 2 error
  std::string status_message;
};

// Attributes of the process or library that sent a group of spans.
struct RawResource {
  std::vector<Attribute> attributes;
};

}  // namespace tailspan::collect
