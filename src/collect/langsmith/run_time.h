// Times and dotted orders as LangSmith clients write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "collect/json.h"
#include "model/ids.h"

namespace tailspan::collect::langsmith {

// ISO 8601 with or without fraction and zone; without a zone it is UTC. 0 when it is no time.
int64_t UnixNsFromIso(std::string_view text);

// A string as above, or a number whose size tells seconds, milliseconds, microseconds and nanoseconds apart.
// `whole_ms` is set for a number of milliseconds: JavaScript's clock.
int64_t UnixNsFromJson(Json json, bool* whole_ms);

// `20261130T180105123456Z<uuid>` segments joined by dots, from the root to the run itself.
struct DottedOrder {
  model::Uuid root;
  model::Uuid parent;  // none: the run is the root
  model::Uuid self;
  int64_t start_unix_ns = 0;
};
// All zero when the text is not a dotted order.
DottedOrder ParseDottedOrder(std::string_view text);

}  // namespace tailspan::collect::langsmith
