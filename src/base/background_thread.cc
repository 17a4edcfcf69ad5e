#include "base/background_thread.h"

#include <sched.h>
#include <unistd.h>

#include "base/clock.h"

namespace tailspan::base {
namespace {

constexpr std::chrono::milliseconds kWatchEvery{100};

bool SetPolicy(int tid, int policy) {
  const sched_param none{};
  return sched_setscheduler(tid, policy, &none) == 0;
}

// On a thread of its own, which stays idle where the way back is barred.
bool CanComeBack() {
  bool can = false;
  std::thread([&can] { can = SetPolicy(0, SCHED_IDLE) && SetPolicy(0, SCHED_OTHER); }).join();
  return can;
}

}  // namespace

BackgroundThread::BackgroundThread(std::chrono::milliseconds round_max, std::chrono::milliseconds ordinary_for)
    : tid_(gettid()),
      round_max_ns_(std::chrono::nanoseconds(round_max).count()),
      ordinary_for_ns_(std::chrono::nanoseconds(ordinary_for).count()),
      round_mono_ns_(MonoNowNs()) {
  if (!CanComeBack()) return;
  watcher_ = std::thread([this] { Watch(); });  // before this thread may starve
  SetPolicy(tid_, SCHED_IDLE);
}

BackgroundThread::~BackgroundThread() {
  if (!can_give_way()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  watcher_.join();
  SetPolicy(tid_, SCHED_OTHER);
}

void BackgroundThread::CameRound() { round_mono_ns_ = MonoNowNs(); }

void BackgroundThread::Watch() {
  bool was_idle = true;
  int64_t ordinary_until_mono_ns = 0;
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kWatchEvery, [this] { return stopping_; })) {
    const int64_t now_ns = MonoNowNs();
    if (now_ns - round_mono_ns_ > round_max_ns_) ordinary_until_mono_ns = now_ns + ordinary_for_ns_;
    const bool idle = now_ns >= ordinary_until_mono_ns;
    if (idle != was_idle && SetPolicy(tid_, idle ? SCHED_IDLE : SCHED_OTHER)) was_idle = idle;
  }
}

}  // namespace tailspan::base
