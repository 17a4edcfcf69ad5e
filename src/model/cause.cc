#include "model/cause.h"

#include "base/result.h"

namespace tailspan::model {
namespace {

constexpr std::string_view kNames[] = {
#define X(id, name) name,
    TAILSPAN_CAUSES(X)
#undef X
};

}  // namespace

std::string_view CauseName(Cause cause) {
  TAILSPAN_CHECK(cause < Cause::kCount);
  return kNames[static_cast<size_t>(cause)];
}

std::optional<Cause> CauseByName(std::string_view name) {
  for (size_t i = 0; i < static_cast<size_t>(Cause::kCount); ++i) {
    if (kNames[i] == name) return static_cast<Cause>(i);
  }
  return std::nullopt;
}

bool IsContention(Cause cause) {
  switch (cause) {
    case Cause::kRunQueue:
    case Cause::kEventLoop:
    case Cause::kQueue:
    case Cause::kGil:
    case Cause::kLock:
      return true;
    default:
      return false;
  }
}

}  // namespace tailspan::model
