// What a watched process says about itself: the payload of its process context, or the text of its maps file.
#include "probe/process_context.h"

#include "base/result.h"
#include "fuzz/target.h"

void tailspan::fuzz::RunOne(std::string_view input) {
  auto context = probe::ParseProcessContext({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
  if (context.ok()) TAILSPAN_CHECK(context->keys.size() <= 256 && context->ring_fd >= -1);
  for (const auto& range : probe::FindMappings(input, "OTEL_CTX")) TAILSPAN_CHECK(range.start < range.end);
}
