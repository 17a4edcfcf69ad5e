#include "analyze/gil_timeline.h"

#include <map>

namespace tailspan::analyze {

GilTimeline::GilTimeline(const Timeline& timeline) : timeline_(timeline) {
  std::map<int32_t, std::vector<int>> threads;
  for (size_t i = 0; i < timeline.threads().size(); ++i) {
    if (timeline.threads()[i].intervals.empty()) continue;  // a ring may name any thread
    threads[timeline.threads()[i].key.pid].push_back(static_cast<int>(i));
  }
  for (auto& [pid, list] : threads) {
    std::vector<const model::ThreadInterval*> intervals;
    bool any_wait = false;
    for (int thread : list) {
      const auto& of_thread = timeline.thread(thread).intervals;
      intervals.insert(intervals.end(), of_thread.begin(), of_thread.end());
      for (const model::ThreadInterval* one : of_thread) any_wait |= one->wait_class == model::WaitClass::kGil;
    }
    if (any_wait) processes_.try_emplace(pid, Process{GilHolds(intervals), std::move(list)});
  }
}

std::vector<GilShare> GilTimeline::Holders(int waiter, int64_t from_ns, int64_t to_ns) const {
  if (to_ns <= from_ns) return {};
  const ThreadKey key = timeline_.thread(waiter).key;
  auto found = processes_.find(key.pid);
  if (found == processes_.end()) return {{from_ns, to_ns, -1, false}};
  const Process& process = found->second;
  std::vector<GilShare> out;
  int64_t at_ns = from_ns;
  // A gap is a hand-over: who holds next was woken and is not on the CPU yet. Without a next one: who had the CPU.
  auto fill_gap = [&](int64_t until_ns, int next) {
    if (until_ns <= at_ns) return;
    out.push_back({at_ns, until_ns, next >= 0 ? next : BusiestThread(process, waiter, at_ns, until_ns), false});
  };
  for (const GilHold& hold : process.holds.HoldsBetween(from_ns, to_ns)) {
    int thread = timeline_.FindThread({key.pid, hold.tid});
    fill_gap(hold.start_mono_ns, thread);
    out.push_back({hold.start_mono_ns, hold.end_mono_ns, thread, true});
    at_ns = hold.end_mono_ns;
  }
  fill_gap(to_ns, -1);
  return out;
}

int GilTimeline::BusiestThread(const Process& process, int waiter, int64_t from_ns, int64_t to_ns) const {
  int best = -1;
  int64_t best_ns = (to_ns - from_ns) / 2;  // less than half of the wait is no evidence
  for (int thread : process.threads) {
    if (thread == waiter) continue;
    int64_t ns = 0;
    for (const Slice& slice : timeline_.Slices(thread, from_ns, to_ns)) {
      bool wants_cpu = slice.kind == Slice::Kind::kOnCpu || slice.kind == Slice::Kind::kRunnable;
      if (wants_cpu) ns += slice.end_ns - slice.start_ns;
    }
    if (ns > best_ns) {
      best_ns = ns;
      best = thread;
    }
  }
  return best;
}

}  // namespace tailspan::analyze
