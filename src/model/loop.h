// What the loop ring of a Python process tells about its event loops, executors and current spans. CLOCK_MONOTONIC.
//
// A "step" is one run of one asyncio handle, or one executor job. A carrier is what steps belong to: an asyncio task,
// or a plain thread. Step ids are unique within a process and consecutive per thread: a hole is a loss.
#pragma once

#include <cstdint>
#include <string>

#include "model/ids.h"

namespace tailspan::model {

enum class StepKind : uint8_t {
  kSoon,      // call_soon, call_soon_threadsafe
  kIoRead,    // a reader's callback after a poll
  kIoWrite,   // a writer's callback after a poll
  kTimer,     // call_later, call_at
  kExecutor,  // a job of a thread pool
  kNewTask,   // the first step of a task; a task's address may be used again, this starts a new carrier
};

struct LoopStep {
  int32_t pid = 0, tid = 0;
  uint64_t step_id = 0;
  // The step that made this one ready, that armed the timer, or submitted the job; 0 the poll, or unknown. See
  // PlainThreadOf for code that ran in no step.
  uint64_t waker_step_id = 0;
  SpanId waker_span_id = 0;  // the span current in the waker at that instant
  uint64_t task = 0;         // identity of the task while it lives; 0 when the handle is no task's
  StepKind kind = StepKind::kSoon;
  uint16_t site = 0;         // index into the process's LoopSite table: the code that made it ready
  int32_t fd = -1;           // for I/O kinds
  SpanId span_id = 0;        // the thread's from start to end, but for the changes within it
  SpanId outer_span_id = 0;  // the thread's again from end on
  int64_t ready_mono_ns = 0;
  int64_t start_mono_ns = 0;
  int64_t end_mono_ns = 0;
};

// Code outside any step, in a thread of its own, stands as a waker by its thread: its id, or 0 for a real step.
inline int32_t PlainThreadOf(uint64_t step_id) {
  return step_id >> 48 == 0xFFFF ? static_cast<int32_t>(step_id & 0x7FFFFFFF) : 0;
}

struct LoopSite {
  int32_t pid = 0;
  uint16_t index = 0;
  std::string name;  // "file.py:qualname"
};

enum class SpanChangeKind : uint8_t { kEnter, kLeave, kRestore };

// From `at` on, `span_id` is the current span of this thread (0 none).
struct SpanChange {
  int32_t pid = 0, tid = 0;
  int64_t at_mono_ns = 0;
  uint64_t step_id = 0;  // the step in which it happened, 0 outside any
  SpanId span_id = 0;
  SpanId previous_id = 0;
  SpanChangeKind kind = SpanChangeKind::kEnter;
};

struct LoopPoll {
  int32_t pid = 0, tid = 0;
  int64_t enter_mono_ns = 0;
  int64_t return_mono_ns = 0;  // epoll_wait returned; the GIL is not held yet
  int64_t resume_mono_ns = 0;  // the GIL is held again
  int32_t ready_count = 0;
};

// Records of one thread's slot that were lost between two moments: what happened there is not known.
struct LoopHole {
  int32_t pid = 0, tid = 0;
  int64_t after_mono_ns = 0;   // end of the last record before; 0 none was read
  int64_t before_mono_ns = 0;  // end of the first record after; 0 none yet
  uint64_t record_count = 0;
};

struct GcPause {
  int32_t pid = 0, tid = 0;
  int64_t start_mono_ns = 0, end_mono_ns = 0;
  int32_t generation = 0;
  uint64_t step_id = 0;
  SpanId span_id = 0;
};

}  // namespace tailspan::model
