// Writes JSON text field by field. Strings are escaped and made valid UTF-8, numbers printed shortest; NaN becomes
// null. The caller keeps begin/end in step (checked). Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tailspan::base {

class JsonWriter {
 public:
  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  JsonWriter& Key(std::string_view key);
  JsonWriter& String(std::string_view value);
  JsonWriter& Int(int64_t value);
  JsonWriter& Uint(uint64_t value);
  JsonWriter& Double(double value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  JsonWriter& Raw(std::string_view json);  // already valid JSON

  const std::string& text() const;  // complete document; every begin must have its end

 private:
  void BeforeValue();

  std::string text_;
  std::vector<char> open_;  // '{' or '['
  bool need_comma_ = false;
  bool after_key_ = false;
};

// Escaped, without the quotes. Bytes that are not UTF-8 become U+FFFD.
std::string JsonEscape(std::string_view text);

// Copy with every byte that is not part of valid UTF-8 replaced by U+FFFD; `replaced` is set when there was one.
std::string ToUtf8(std::string_view text, bool* replaced = nullptr);

}  // namespace tailspan::base
