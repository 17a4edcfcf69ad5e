#include <cmath>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "base/json_writer.h"
#include "collect/otlp/otlp.h"
#include "collect/text.h"

namespace tailspan::collect::otlp {
namespace {

using base::JsonWriter;
using protozero::data_view;
using protozero::pbf_reader;
using protozero::pbf_wire_type;

std::string ToString(data_view view) { return std::string(view.data(), view.size()); }

// Field and wire type as one case label: a field with the wrong wire type is skipped like an unknown one.
constexpr uint32_t Tag(uint32_t field, pbf_wire_type type) { return protozero::tag_and_type(field, type); }
constexpr auto kBytes = pbf_wire_type::length_delimited;
constexpr auto kVarint = pbf_wire_type::varint;
constexpr auto kFixed64 = pbf_wire_type::fixed64;

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string Base64(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= n ? kBase64[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

void WriteAnyValue(pbf_reader message, int32_t depth, JsonWriter* json);

void WriteArray(pbf_reader array, int32_t depth, JsonWriter* json) {
  json->BeginArray();
  while (array.next(1, kBytes)) WriteAnyValue(array.get_message(), depth, json);
  json->EndArray();
}

void WriteKvList(pbf_reader list, int32_t depth, JsonWriter* json) {
  json->BeginObject();
  while (list.next(1, kBytes)) {
    pbf_reader entry = list.get_message();
    std::string key;
    pbf_reader value;
    while (entry.next()) {
      switch (entry.tag_and_type()) {
        case Tag(1, kBytes):
          key = ToString(entry.get_view());
          break;
        case Tag(2, kBytes):
          value = entry.get_message();
          break;
        default:
          entry.skip();
      }
    }
    json->Key(key);
    WriteAnyValue(value, depth, json);
  }
  json->EndObject();
}

// One JSON value, always: an empty or too deeply nested AnyValue is null.
void WriteAnyValue(pbf_reader message, int32_t depth, JsonWriter* json) {
  if (depth <= 0 || !message.next()) {
    json->Null();
    return;
  }
  switch (message.tag_and_type()) {
    case Tag(1, kBytes):
      json->String(ToString(message.get_view()));
      return;
    case Tag(2, kVarint):
      json->Bool(message.get_bool());
      return;
    case Tag(3, kVarint):
      json->Int(message.get_int64());
      return;
    case Tag(4, kFixed64):
      json->Double(message.get_double());
      return;
    case Tag(5, kBytes):
      WriteArray(message.get_message(), depth - 1, json);
      return;
    case Tag(6, kBytes):
      WriteKvList(message.get_message(), depth - 1, json);
      return;
    case Tag(7, kBytes):
      json->String(Base64(ToString(message.get_view())));
      return;
    default:
      message.skip();
      json->Null();
  }
}

Value ReadAnyValue(pbf_reader message, int32_t depth) {
  pbf_reader whole = message;
  if (!message.next()) return Value::Text("");
  switch (message.tag_and_type()) {
    case Tag(1, kBytes):
      return Value::Text(ToString(message.get_view()));
    case Tag(2, kVarint):
      return Value::Bool(message.get_bool());
    case Tag(3, kVarint):
      return Value::Int(message.get_int64());
    case Tag(4, kFixed64):
      return Value::Double(message.get_double());
    case Tag(7, kBytes):
      return Value::Text(Base64(ToString(message.get_view())));
    default: {
      JsonWriter json;
      WriteAnyValue(whole, depth, &json);
      return Value::Json(json.text());
    }
  }
}

Attribute ReadKeyValue(pbf_reader message, int32_t depth) {
  Attribute out;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case Tag(1, kBytes):
        out.first = ToString(message.get_view());
        break;
      case Tag(2, kBytes):
        out.second = ReadAnyValue(message.get_message(), depth);
        break;
      default:
        message.skip();
    }
  }
  return out;
}

// What is read of one span, and how often something was left out.
struct Bounds {
  const Limits& limits;
  base::LossCounters& loss;
};

void ReadAttribute(pbf_reader message, const Bounds& bounds, std::vector<Attribute>* out) {
  if (out->size() >= bounds.limits.raw_attributes) {
    bounds.loss.Add(base::Loss::kAttributeCut);
    return;
  }
  out->push_back(ReadKeyValue(message, bounds.limits.value_depth));
}

RawEvent ReadEvent(pbf_reader message, const Bounds& bounds) {
  RawEvent out;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case Tag(1, kFixed64):
        out.time_unix_ns = static_cast<int64_t>(message.get_fixed64());
        break;
      case Tag(2, kBytes):
        out.name = ToString(message.get_view());
        break;
      case Tag(3, kBytes):
        ReadAttribute(message.get_message(), bounds, &out.attributes);
        break;
      default:
        message.skip();
    }
  }
  return out;
}

void ReadStatus(pbf_reader message, RawSpan* span) {
  while (message.next()) {
    switch (message.tag_and_type()) {
      case Tag(2, kBytes):
        span->status_message = ToString(message.get_view());
        break;
      case Tag(3, kVarint):
        span->status_code = message.get_int32();
        break;
      default:
        message.skip();
    }
  }
}

RawSpan ReadSpan(pbf_reader message, const Bounds& bounds) {
  RawSpan span;
  while (message.next()) {
    switch (message.tag_and_type()) {
      case Tag(1, kBytes):
        span.trace_id = ToString(message.get_view());
        break;
      case Tag(2, kBytes):
        span.span_id = ToString(message.get_view());
        break;
      case Tag(4, kBytes):
        span.parent_id = ToString(message.get_view());
        break;
      case Tag(5, kBytes):
        span.name = ToString(message.get_view());
        break;
      case Tag(6, kVarint):
        span.kind = message.get_int32();
        break;
      case Tag(7, kFixed64):
        span.start_unix_ns = message.get_fixed64();
        break;
      case Tag(8, kFixed64):
        span.end_unix_ns = message.get_fixed64();
        break;
      case Tag(9, kBytes):
        ReadAttribute(message.get_message(), bounds, &span.attributes);
        break;
      case Tag(11, kBytes):
        if (span.events.size() < bounds.limits.events) {
          span.events.push_back(ReadEvent(message.get_message(), bounds));
        } else {
          bounds.loss.Add(base::Loss::kAttributeCut);
          message.skip();
        }
        break;
      case Tag(15, kBytes):
        ReadStatus(message.get_message(), &span);
        break;
      default:
        message.skip();
    }
  }
  return span;
}

RawResource ReadResource(pbf_reader message, const Bounds& bounds) {
  RawResource out;
  while (message.next(1, kBytes)) ReadAttribute(message.get_message(), bounds, &out.attributes);
  return out;
}

// gRPC's code for an HTTP status.
int32_t CodeFor(int http_status) {
  switch (http_status) {
    case 404:
    case 405:
      return 12;  // UNIMPLEMENTED
    case 413:
    case 431:
      return 8;  // RESOURCE_EXHAUSTED
    default:
      return http_status >= 500 ? 13 : 3;  // INTERNAL, INVALID_ARGUMENT
  }
}

std::string RejectedMessage(int64_t rejected) {
  return std::to_string(rejected) + " spans had ids of the wrong length";
}

}  // namespace

base::Result<Decoded> Decoder::Protobuf(std::string_view body) {
  Decoded decoded;
  const Bounds bounds{limits_, loss_};
  try {
    pbf_reader request(body.data(), body.size());
    while (request.next(1, kBytes)) {
      pbf_reader group = request.get_message();
      // The resource comes first on every wire seen, but nothing promises it: look for it before the spans.
      RawResource resource;
      for (pbf_reader look = group; look.next(1, kBytes);) resource = ReadResource(look.get_message(), bounds);
      while (group.next(2, kBytes)) {
        pbf_reader scope = group.get_message();
        while (scope.next(2, kBytes)) {
          Accept(resource, ReadSpan(scope.get_message(), bounds), &normaliser_, loss_, &decoded);
          if (decoded.bytes > limits_.decoded_bytes) return TooManySpans(limits_);
        }
      }
    }
  } catch (const std::exception& damaged) {
    return base::Error{base::Code::kInvalidArgument, std::string("not a valid OTLP message: ") + damaged.what()};
  }
  return decoded;
}

std::string AnswerProtobuf(int64_t rejected) {
  std::string out;
  if (rejected == 0) return out;
  {
    protozero::pbf_writer response(out);
    protozero::pbf_writer partial(response, 1);  // writes its length when it goes
    partial.add_int64(1, rejected);
    partial.add_string(2, RejectedMessage(rejected));
  }
  return out;
}

std::string AnswerJson(int64_t rejected) {
  if (rejected == 0) return "{}";
  JsonWriter json;
  json.BeginObject().Key("partialSuccess").BeginObject();
  json.Key("rejectedSpans").String(std::to_string(rejected));
  json.Key("errorMessage").String(RejectedMessage(rejected));
  json.EndObject().EndObject();
  return json.text();
}

std::string ErrorProtobuf(int http_status, std::string_view message) {
  std::string out;
  protozero::pbf_writer status(out);
  status.add_int32(1, CodeFor(http_status));
  status.add_string(2, message.data(), message.size());
  return out;
}

std::string ErrorJson(int http_status, std::string_view message) {
  JsonWriter json;
  json.BeginObject().Key("code").Int(CodeFor(http_status)).Key("message").String(message).EndObject();
  return json.text();
}

}  // namespace tailspan::collect::otlp
