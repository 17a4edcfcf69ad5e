#include "collect/json.h"

#include "base/json_writer.h"
#include "collect/otlp/otlp.h"
#include "collect/text.h"

namespace tailspan::collect::otlp {
namespace {

using base::JsonWriter;
using simdjson::dom::array;
using simdjson::dom::element_type;
using simdjson::dom::object;

// Some exporters write snake_case, as the protobuf library does on request.
Json Field(Json json, std::string_view camel, std::string_view snake) {
  Json found = Member(json, camel);
  return IsNull(found) ? Member(json, snake) : found;
}

// Calls `use` for each element of an array; nothing for anything else.
template <typename Use>
void ForEach(Json json, Use use) {
  array items;
  if (json.get_array().get(items)) return;
  for (Json item : items) use(item);
}

// Hex as the protocol says, or base64 as protobuf's own JSON mapping writes bytes. `size` tells them apart: 16 bytes
// are 32 hex digits or 24 characters of base64.
std::string ReadId(Json json, size_t size) {
  std::string_view text = StringOf(json);
  std::string bytes;
  if (text.size() == 2 * size && DecodeHex(text, &bytes)) return bytes;
  if (size == 16 && text.size() == 36) {
    if (auto id = model::TraceIdFromText(text)) {
      auto raw = model::ToBytes(*id);
      return std::string(raw.begin(), raw.end());
    }
  }
  if (DecodeBase64(text, &bytes) && bytes.size() == size) return bytes;
  return std::string(text);  // of the wrong length, or made so below
}

std::string ReadIdChecked(Json json, size_t size) {
  std::string id = ReadId(json, size);
  // Text of the right length that is neither hex nor base64 must not pass for bytes.
  if (id.size() == size && id == StringOf(json)) id += '?';
  return id;
}

uint64_t ReadTime(Json json) {
  uint64_t large = 0;
  if (json.type() == element_type::UINT64 && !json.get_uint64().get(large)) return large;
  int64_t value = 0;
  return IntOf(json, &value) && value > 0 ? static_cast<uint64_t>(value) : 0;
}

// A number, or the name of an enum's value: "SPAN_KIND_SERVER", "STATUS_CODE_ERROR".
int32_t ReadEnum(Json json, std::initializer_list<std::string_view> names) {
  std::string_view text = StringOf(json);
  int32_t number = 0;
  for (std::string_view name : names) {
    if (text.size() >= name.size() && text.substr(text.size() - name.size()) == name) return number;
    ++number;
  }
  int64_t value = 0;
  return IntOf(json, &value) && value >= 0 && value < 100 ? static_cast<int32_t>(value) : 0;
}

void WriteAnyValue(Json json, int32_t depth, JsonWriter* out);

void WriteMembers(Json list, int32_t depth, JsonWriter* out) {
  out->BeginObject();
  ForEach(Member(list, "values"), [&](Json entry) {
    out->Key(StringOf(Member(entry, "key")));
    WriteAnyValue(Member(entry, "value"), depth, out);
  });
  out->EndObject();
}

// The one member of an AnyValue: {"stringValue": ...}.
bool Single(Json json, std::string_view* key, Json* value) {
  object members;
  if (json.get_object().get(members)) return false;
  for (auto [name, member] : members) {
    *key = name;
    *value = member;
    return true;
  }
  return false;
}

void WriteAnyValue(Json json, int32_t depth, JsonWriter* out) {
  std::string_view key;
  Json value;
  if (depth <= 0 || !Single(json, &key, &value)) {
    out->Null();
    return;
  }
  if (key == "arrayValue" || key == "array_value") {
    out->BeginArray();
    ForEach(Member(value, "values"), [&](Json item) { WriteAnyValue(item, depth - 1, out); });
    out->EndArray();
  } else if (key == "kvlistValue" || key == "kvlist_value") {
    WriteMembers(value, depth - 1, out);
  } else if (key == "intValue" || key == "int_value") {
    int64_t number = 0;
    IntOf(value, &number);
    out->Int(number);
  } else {
    out->Raw(TextOf(value));
  }
}

Value ReadAnyValue(Json json, int32_t depth) {
  std::string_view key;
  Json value;
  if (!Single(json, &key, &value)) return Value::Text("");
  int64_t number = 0;
  if ((key == "intValue" || key == "int_value") && IntOf(value, &number)) return Value::Int(number);
  if (key == "arrayValue" || key == "array_value" || key == "kvlistValue" || key == "kvlist_value") {
    JsonWriter out;
    WriteAnyValue(json, depth, &out);
    return Value::Json(out.text());
  }
  return ValueOf(value);
}

// What is read of one span, and how often something was left out.
struct Bounds {
  const Limits& limits;
  base::LossCounters& loss;
};

std::vector<Attribute> ReadAttributes(Json json, const Bounds& bounds) {
  std::vector<Attribute> out;
  int32_t depth = bounds.limits.value_depth;
  ForEach(json, [&](Json entry) {
    if (out.size() >= bounds.limits.raw_attributes) {
      bounds.loss.Add(base::Loss::kAttributeCut);
      return;
    }
    out.emplace_back(std::string(StringOf(Member(entry, "key"))), ReadAnyValue(Member(entry, "value"), depth));
  });
  return out;
}

RawSpan ReadSpan(Json json, const Bounds& bounds) {
  RawSpan span;
  span.trace_id = ReadIdChecked(Field(json, "traceId", "trace_id"), 16);
  span.span_id = ReadIdChecked(Field(json, "spanId", "span_id"), 8);
  span.parent_id = ReadIdChecked(Field(json, "parentSpanId", "parent_span_id"), 8);
  span.name = std::string(StringOf(Member(json, "name")));
  span.kind = ReadEnum(Member(json, "kind"), {"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"});
  span.start_unix_ns = ReadTime(Field(json, "startTimeUnixNano", "start_time_unix_nano"));
  span.end_unix_ns = ReadTime(Field(json, "endTimeUnixNano", "end_time_unix_nano"));
  span.attributes = ReadAttributes(Member(json, "attributes"), bounds);
  ForEach(Member(json, "events"), [&](Json entry) {
    if (span.events.size() >= bounds.limits.events) {
      bounds.loss.Add(base::Loss::kAttributeCut);
      return;
    }
    RawEvent event;
    event.time_unix_ns = static_cast<int64_t>(ReadTime(Field(entry, "timeUnixNano", "time_unix_nano")));
    event.name = std::string(StringOf(Member(entry, "name")));
    event.attributes = ReadAttributes(Member(entry, "attributes"), bounds);
    span.events.push_back(std::move(event));
  });
  Json status = Member(json, "status");
  span.status_code = ReadEnum(Member(status, "code"), {"UNSET", "OK", "ERROR"});
  span.status_message = std::string(StringOf(Member(status, "message")));
  return span;
}

}  // namespace

base::Result<Decoded> Decoder::Json(std::string_view body) {
  JsonParser parser(limits_, loss_);
  auto root = parser.Parse(body);
  if (!root.ok()) return std::move(root).error();
  if (root->type() != element_type::OBJECT) {
    return base::Error{base::Code::kInvalidArgument, "not an OTLP request: the body is no JSON object"};
  }
  Decoded decoded;
  const Bounds bounds{limits_, loss_};
  ForEach(Field(*root, "resourceSpans", "resource_spans"), [&](collect::Json group) {
    RawResource resource{ReadAttributes(Member(Member(group, "resource"), "attributes"), bounds)};
    ForEach(Field(group, "scopeSpans", "scope_spans"), [&](collect::Json scope) {
      ForEach(Member(scope, "spans"), [&](collect::Json span) {
        if (decoded.bytes > limits_.decoded_bytes) return;
        Accept(resource, ReadSpan(span, bounds), &normaliser_, loss_, &decoded);
      });
    });
  });
  if (decoded.bytes > limits_.decoded_bytes) return TooManySpans(limits_);
  return decoded;
}

}  // namespace tailspan::collect::otlp
