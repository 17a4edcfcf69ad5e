// Undoes a Content-Encoding (identity, gzip, deflate, zstd; several joined by commas are undone from the right).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tailspan::collect::http {

// kResourceExhausted when the result would pass `bytes_max` (never allocates more than that plus one block),
// kInvalidArgument when the data is damaged or cut, kUnsupported for another coding.
base::Result<std::string> Decode(std::string_view coding, std::string body, size_t bytes_max);

}  // namespace tailspan::collect::http
