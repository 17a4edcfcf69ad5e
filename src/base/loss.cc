#include "base/loss.h"

#include "base/result.h"

namespace tailspan::base {
namespace {

constexpr LossInfo kCatalogue[] = {
#define X(id, name, severity, remedy) {name, Severity::severity, remedy},
    TAILSPAN_LOSSES(X)
#undef X
};

}  // namespace

const LossInfo& Describe(Loss loss) {
  TAILSPAN_CHECK(loss < Loss::kCount);
  return kCatalogue[static_cast<size_t>(loss)];
}

std::optional<Loss> LossByName(std::string_view name) {
  for (size_t i = 0; i < static_cast<size_t>(Loss::kCount); ++i) {
    if (name == kCatalogue[i].name) return static_cast<Loss>(i);
  }
  return std::nullopt;
}

std::map<std::string, uint64_t> LossCounters::NonZero() const {
  std::map<std::string, uint64_t> out;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (uint64_t n = counts_[i].load(std::memory_order_relaxed)) out[kCatalogue[i].name] = n;
  }
  return out;
}

LossCounters& LossCounters::Global() {
  static LossCounters counters;
  return counters;
}

}  // namespace tailspan::base
