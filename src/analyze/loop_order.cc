#include "analyze/loop_order.h"

#include <algorithm>
#include <tuple>

namespace tailspan::analyze {
namespace {

using model::LoopStep;

bool StartsBefore(const LoopStep* a, const LoopStep* b) {
  auto key = [](const LoopStep& step) {
    bool has_length = step.end_mono_ns > step.start_mono_ns;
    return std::tuple(step.start_mono_ns, has_length, -step.end_mono_ns, step.pid, step.step_id);
  };
  return key(*a) < key(*b);
}

bool StartsAfter(const LoopStep* a, const LoopStep* b) { return StartsBefore(b, a); }

bool SameThread(const LoopStep& a, const LoopStep& b) { return a.pid == b.pid && a.tid == b.tid; }

// `begin` to `end`: one thread's steps, by StartsBefore.
void OrderThread(const LoopStep** begin, const LoopStep** end, StepOrder* out) {
  std::vector<const LoopStep*> moved;  // a heap, the earliest in front
  std::vector<int64_t> open_ends;      // of the steps that the next one lies within; none is later than the one before
  while (begin != end || !moved.empty()) {
    const LoopStep* step = nullptr;
    if (moved.empty() || (begin != end && StartsBefore(*begin, moved.front()))) {
      step = *begin++;
    } else {
      std::pop_heap(moved.begin(), moved.end(), StartsAfter);
      step = moved.back();
      moved.pop_back();
    }
    while (!open_ends.empty() && open_ends.back() <= step->start_mono_ns) open_ends.pop_back();
    // The longest of those that end before it does.
    auto crossed = std::lower_bound(open_ends.begin(), open_ends.end(), step->end_mono_ns,
                                    [](int64_t end_ns, int64_t value) { return end_ns >= value; });
    if (crossed == open_ends.end()) {
      open_ends.push_back(step->end_mono_ns);
      out->steps.push_back(step);
      continue;
    }
    ++out->contradictions;
    out->disputes.push_back({step->pid, step->tid, step->start_mono_ns, *crossed});
    LoopStep& later = out->mended.emplace_back(*step);
    later.start_mono_ns = *crossed;
    moved.push_back(&later);
    std::push_heap(moved.begin(), moved.end(), StartsAfter);
  }
}

}  // namespace

StepOrder OrderSteps(const std::vector<LoopStep>& records) {
  StepOrder out;
  std::vector<const LoopStep*> all;
  all.reserve(records.size());
  for (const LoopStep& record : records) {
    if (record.end_mono_ns < record.start_mono_ns) {  // claims no time
      ++out.contradictions;
      continue;
    }
    all.push_back(&record);
    if (record.ready_mono_ns <= record.start_mono_ns) continue;
    ++out.contradictions;
    LoopStep& mended = out.mended.emplace_back(record);
    mended.ready_mono_ns = mended.start_mono_ns;
    all.back() = &mended;
  }
  std::sort(all.begin(), all.end(), [](const LoopStep* a, const LoopStep* b) {
    if (!SameThread(*a, *b)) return std::pair(a->pid, a->tid) < std::pair(b->pid, b->tid);
    return StartsBefore(a, b);
  });
  out.steps.reserve(all.size());
  for (size_t i = 0; i < all.size();) {
    size_t after = i + 1;
    while (after < all.size() && SameThread(*all[after], *all[i])) ++after;
    OrderThread(all.data() + i, all.data() + after, &out);
    i = after;
  }
  std::sort(out.steps.begin(), out.steps.end(), StartsBefore);
  return out;
}

}  // namespace tailspan::analyze
