// Compressed bodies: the first line is the Content-Encoding. The result never passes its limit.
#include "base/result.h"
#include "collect/http/encoding.h"
#include "fuzz/target.h"

void tailspan::fuzz::RunOne(std::string_view input) {
  constexpr size_t kBytesMax = 1u << 20;
  size_t end = input.find('\n');
  if (end == std::string_view::npos) return;
  auto decoded = collect::http::Decode(input.substr(0, end), std::string(input.substr(end + 1)), kBytesMax);
  TAILSPAN_CHECK(!decoded.ok() || decoded->size() <= kBytesMax);
}
