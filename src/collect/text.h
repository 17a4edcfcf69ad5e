// Text on its way into a span: always UTF-8, never longer than its limit, and every change counted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/loss.h"

namespace tailspan::collect {

bool IsUtf8(std::string_view text);
// Replaces bytes that are not UTF-8 (text_not_utf8) and cuts at the end of a character (attribute_cut).
std::string Clean(std::string text, size_t bytes_max, base::LossCounters& loss);
// The first 16 hex digits of SHA-256.
std::string ShortHash(std::string_view text);
// Decimal integer, nothing else around it.
bool ParseInt(std::string_view text, int64_t* value);
std::string Lower(std::string_view text);
bool DecodeHex(std::string_view text, std::string* bytes);
bool DecodeBase64(std::string_view text, std::string* bytes);  // standard or URL alphabet, padding optional

}  // namespace tailspan::collect
