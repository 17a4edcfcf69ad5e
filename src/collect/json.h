// JSON from clients, parsed with simdjson. Real bodies hold what the standard forbids: bytes that are not UTF-8, lone
// surrogates, NaN, integers of any size. A body that does not parse is mended once and tried again.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "base/loss.h"
#include "base/result.h"
#include "collect/limits.h"
#include "collect/raw_span.h"

namespace tailspan::collect {

using Json = simdjson::dom::element;

// Owns the memory of the element that it returns last; parsing again invalidates it. kResourceExhausted for a document
// over Limits::json_bytes, kInvalidArgument for what is no JSON.
class JsonParser {
 public:
  JsonParser(const Limits& limits, base::LossCounters& loss) : bytes_max_(limits.json_bytes), loss_(loss) {}
  base::Result<Json> Parse(std::string_view text);

 private:
  size_t bytes_max_;
  base::LossCounters& loss_;
  simdjson::dom::parser parser_;
};

// A copy in which strings are UTF-8, \u escapes are whole, NaN and Infinity are null and large integers are doubles.
std::string MendJson(std::string_view text, bool* replaced);

// Member of an object; an element of type null when it is not there or `json` is no object.
Json Member(Json json, std::string_view key);
bool IsNull(Json json);
std::string_view StringOf(Json json);  // empty when it is no string
// A number, or a string that holds one.
bool IntOf(Json json, int64_t* value);
std::string TextOf(Json json);  // compact JSON
Value ValueOf(Json json);

}  // namespace tailspan::collect
