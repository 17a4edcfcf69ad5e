// A thread that works beside what is measured and gives way to it: whoever wakes takes the CPU from it at once
// (SCHED_IDLE). Where no CPU is ever idle it would come to nothing, so while it does not come round in time it is an
// ordinary thread, by a watching thread that is one always.
//
// Needs the privilege to become ordinary again (root, CAP_SYS_NICE or RLIMIT_NICE), which is tried; without it the
// thread stays ordinary.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace tailspan::base {

class BackgroundThread {
 public:
  // The calling thread is one from here to this object's end. It is to come round at least every `round_max`; once it
  // was late it stays ordinary for `ordinary_for`.
  explicit BackgroundThread(std::chrono::milliseconds round_max,
                            std::chrono::milliseconds ordinary_for = std::chrono::seconds(5));
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  void CameRound();
  bool can_give_way() const { return watcher_.joinable(); }

 private:
  void Watch();

  const int tid_;
  const int64_t round_max_ns_, ordinary_for_ns_;
  std::atomic<int64_t> round_mono_ns_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace tailspan::base
