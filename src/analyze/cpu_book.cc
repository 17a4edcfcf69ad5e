#include "analyze/cpu_book.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tailspan::analyze {

model::CpuBook CompareCpuBooks(const std::vector<model::ThreadInterval>& intervals) {
  struct Thread {
    int64_t measured_ns = 0, scheduler_ns = 0, run_queue_ns = 0;
  };
  std::map<std::tuple<int32_t, int32_t, int64_t>, Thread> threads;  // pid, tid, start
  for (const model::ThreadInterval& interval : intervals) {
    if (interval.kernel_run_ns < 0) continue;
    Thread& thread = threads[{interval.pid, interval.tid, interval.thread_start_mono_ns}];
    thread.measured_ns += interval.on_cpu_ns;
    thread.scheduler_ns += interval.kernel_run_ns;
    thread.run_queue_ns += interval.short_ns[static_cast<size_t>(model::WaitClass::kRunQueue)];
    if (interval.wake_mono_ns) {
      thread.run_queue_ns += std::max<int64_t>(0, interval.wait_end_mono_ns - interval.wake_mono_ns);
    }
  }
  model::CpuBook book;
  for (const auto& [key, thread] : threads) {
    book.measured_ns += thread.measured_ns;
    book.scheduler_ns += thread.scheduler_ns;
    int64_t lead_ns = std::max<int64_t>(0, thread.scheduler_ns - thread.measured_ns);
    book.preemption_ns += std::min(lead_ns, thread.run_queue_ns);
  }
  return book;
}

}  // namespace tailspan::analyze
