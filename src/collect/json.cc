#include "collect/json.h"

#include <cmath>

#include "base/json_writer.h"
#include "collect/text.h"

namespace tailspan::collect {
namespace {

using simdjson::dom::element_type;

constexpr size_t kIntegerDigitsMax = 18;  // every integer of so many digits fits 64 bits
constexpr size_t kExactDigitsMax = 300;   // longer ones overflow a double
constexpr size_t kKeptBytes = 4u << 20;
constexpr std::string_view kReplacement = "\\ufffd";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool ParseHex4(std::string_view text, uint32_t* value) {
  if (text.size() < 4) return false;
  std::string bytes;
  if (!DecodeHex(text.substr(0, 4), &bytes)) return false;
  *value = static_cast<uint32_t>(static_cast<unsigned char>(bytes[0])) << 8 | static_cast<unsigned char>(bytes[1]);
  return true;
}

// Copies one JSON string from its opening quote, returns how many bytes it took.
size_t MendString(std::string_view text, std::string* out) {
  size_t i = 1;
  *out += '"';
  while (i < text.size() && text[i] != '"') {
    char c = text[i];
    if (static_cast<unsigned char>(c) < 0x20) {
      *out += kReplacement;
      ++i;
      continue;
    }
    if (c != '\\' || i + 1 >= text.size()) {
      *out += c;
      ++i;
      continue;
    }
    if (text[i + 1] != 'u') {
      out->append(text.substr(i, 2));
      i += 2;
      continue;
    }
    uint32_t unit = 0;
    uint32_t next = 0;
    bool whole = ParseHex4(text.substr(i + 2), &unit);
    bool high = whole && unit >= 0xD800 && unit < 0xDC00;
    bool pair = high && text.size() > i + 12 && text[i + 6] == '\\' && text[i + 7] == 'u' &&
                ParseHex4(text.substr(i + 8), &next) && next >= 0xDC00 && next < 0xE000;
    bool lone = whole && unit >= 0xD800 && unit < 0xE000 && !pair;
    if (pair) {
      out->append(text.substr(i, 12));
      i += 12;
    } else if (whole && !lone) {
      out->append(text.substr(i, 6));
      i += 6;
    } else {
      *out += kReplacement;
      i += lone ? 6 : 2;
    }
  }
  if (i < text.size()) {
    *out += '"';
    ++i;
  }
  return i;
}

// Copies one number, a long integer as a double.
size_t MendNumber(std::string_view text, std::string* out) {
  size_t end = text[0] == '-' ? 1 : 0;
  size_t first = end;
  while (end < text.size() && IsDigit(text[end])) ++end;
  bool integer = end >= text.size() || (text[end] != '.' && text[end] != 'e' && text[end] != 'E');
  size_t digits = end - first;
  if (!integer) {
    while (end < text.size() &&
           (IsDigit(text[end]) || std::string_view(".eE+-").find(text[end]) != std::string_view::npos))
      ++end;
    std::string number(text.substr(0, end));
    *out += std::isfinite(std::strtod(number.c_str(), nullptr)) ? number : "null";
    return end;
  }
  if (digits > kExactDigitsMax) {
    *out += "null";
  } else {
    out->append(text.substr(0, end));
    if (digits > kIntegerDigitsMax) *out += ".0";
  }
  return end;
}

}  // namespace

std::string MendJson(std::string_view text, bool* replaced) {
  std::string clean = base::ToUtf8(text, replaced);
  std::string_view left = clean;
  std::string out;
  out.reserve(clean.size());
  while (!left.empty()) {
    size_t taken = 1;
    if (left[0] == '"') {
      taken = MendString(left, &out);
    } else if (left.substr(0, 3) == "NaN") {
      out += "null";
      taken = 3;
    } else if (left.substr(0, 8) == "Infinity" || left.substr(0, 9) == "-Infinity") {
      out += "null";
      taken = left[0] == '-' ? 9 : 8;
    } else if (IsDigit(left[0]) || (left[0] == '-' && left.size() > 1 && IsDigit(left[1]))) {
      taken = MendNumber(left, &out);
    } else {
      out += left[0];
    }
    left.remove_prefix(taken);
  }
  return out;
}

base::Result<Json> JsonParser::Parse(std::string_view text) {
  if (text.size() > bytes_max_) {
    return base::Error{base::Code::kResourceExhausted,
                       "the JSON is over the limit of " + std::to_string(bytes_max_) + " bytes"};
  }
  // A parser keeps room for the largest document that it has seen.
  if (parser_.capacity() > kKeptBytes && text.size() <= kKeptBytes) parser_ = simdjson::dom::parser();
  Json root;
  auto error = parser_.parse(text.data(), text.size()).get(root);
  if (!error) return root;
  bool replaced = false;
  std::string mended = MendJson(text, &replaced);
  if (parser_.parse(mended).get(root)) {
    return base::Error{base::Code::kInvalidArgument, std::string("not valid JSON: ") + simdjson::error_message(error)};
  }
  if (replaced) loss_.Add(base::Loss::kTextNotUtf8);
  return root;
}

Json Member(Json json, std::string_view key) {
  static const Json null = [] {
    auto* parser = new simdjson::dom::parser();
    return parser->parse(std::string("null")).value();
  }();
  Json found;
  simdjson::dom::object object;
  if (json.get_object().get(object) || object.at_key(key).get(found)) return null;
  return found;
}

bool IsNull(Json json) { return json.type() == element_type::NULL_VALUE; }

std::string_view StringOf(Json json) {
  std::string_view text;
  if (json.get_string().get(text)) return {};
  return text;
}

bool IntOf(Json json, int64_t* value) {
  switch (json.type()) {
    case element_type::INT64:
      *value = json.get_int64().value_unsafe();
      return true;
    case element_type::UINT64:
      *value = static_cast<int64_t>(std::min<uint64_t>(json.get_uint64().value_unsafe(), INT64_MAX));
      return true;
    case element_type::DOUBLE: {
      double number = json.get_double().value_unsafe();
      if (!(std::fabs(number) < 9.2e18)) return false;
      *value = static_cast<int64_t>(number);
      return true;
    }
    case element_type::STRING:
      return ParseInt(StringOf(json), value);
    default:
      return false;
  }
}

std::string TextOf(Json json) { return simdjson::minify(json); }

Value ValueOf(Json json) {
  switch (json.type()) {
    case element_type::STRING:
      return Value::Text(std::string(StringOf(json)));
    case element_type::BOOL:
      return Value::Bool(json.get_bool().value_unsafe());
    case element_type::INT64:
      return Value::Int(json.get_int64().value_unsafe());
    case element_type::UINT64:
      return Value::Double(static_cast<double>(json.get_uint64().value_unsafe()));
    case element_type::DOUBLE:
      return Value::Double(json.get_double().value_unsafe());
    default:
      return Value::Json(TextOf(json));
  }
}

}  // namespace tailspan::collect
