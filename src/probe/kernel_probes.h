// The kernel probes of one recording: loads them by trial, follows processes, and hands out what the kernel told.
//
// Data comes from the ring buffer of src/probe/bpf and goes to the caller's batch through Drain, which is to be called
// every 20 to 50 ms: the kernel never wakes the reader, because a reader that preempts what it watches disturbs it.
// Follow before the process runs (a child stopped at a pipe) and nothing is missed; a process that runs already is
// taken in from its threads' next switch on. Children are followed from their fork. Not thread-safe: one thread owns
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/batch.h"

namespace tailspan::probe {

struct KernelProbesOptions {
  int64_t threshold_ns = 50'000;            // waits from here on are records of their own
  int64_t gil_threshold_ns = 5'000;         // lower, since the GIL's release timeline is made of these records
  int64_t flush_ns = 10'000'000;            // shorter waits are summed for at most this long
  uint32_t ring_buffer_bytes = 16u << 20;   // a power of two
  uint32_t flows_max = 16'384;              // TCP sockets known at once; beyond, those used least are forgotten
  uint32_t drop_per_mille = 0;              // test option: loses records on purpose, counted
  unsigned sample_hz = 49;                  // CPU sampling, 0 off
  std::vector<std::string> excluded_comms;  // not followed from their exec on
  std::vector<std::string> signals_off;     // optional signals not to try, by name
};

// Where a process keeps what the probes read. Zero means unknown.
struct ProcessLayout {
  bool has_context = false;
  int64_t tls_offset = 0;              // of the context pointer, from the thread pointer
  uint64_t gil_low = 0, gil_high = 0;  // addresses of the interpreter's own locks, [low, high)
  uint64_t gil_holder_address = 0;     // of the interpreter's pointer to the thread that last held the GIL
  uint32_t gil_holder_tid_offset = 0;  // of the native thread id in that thread's state
  bool gil_holder_by_pthread = false;  // it is the thread's pthread_t instead
};

// What the kernel side lost, with the nanoseconds of thread time that it may hide.
struct ProbeLosses {
  uint64_t ring_full = 0, ring_full_ns = 0;
  uint64_t dropped_on_purpose = 0, dropped_on_purpose_ns = 0;
  uint64_t threads_not_followed = 0;
  uint64_t holes = 0, holes_ns = 0;
  uint64_t repaired = 0;  // switches that the kernel did not tell, timed by its books: nothing is lost
  uint64_t maps_full = 0;
  uint64_t flows_forgotten = 0;
  uint64_t contexts_unreadable = 0;
  uint64_t recursion_misses = 0;
  uint64_t undecodable = 0;
  uint64_t records = 0, switches = 0;  // for scale
};

class KernelProbes {
 public:
  // Fails only when the two always-on programs cannot run; every other signal is a line of capabilities().
  static base::Result<std::unique_ptr<KernelProbes>> Open(const KernelProbesOptions& options);
  // What Open would find, without keeping it: for hosts where Open fails too.
  static std::vector<model::Capability> Probe(const KernelProbesOptions& options);
  ~KernelProbes();

  // Takes in all threads that the process has. kNotFound when it is gone.
  base::Status FollowProcess(int32_t pid);
  // Adds to what is known of the process: what is unknown in `layout` stays as it was. Drain finds layouts by itself;
  // this is for callers who know more.
  base::Status SetProcessLayout(int32_t pid, const ProcessLayout& layout);

  // Appends everything the kernel told since the last call, and keeps the layouts of new processes up to date. Returns
  // how many records were read.
  size_t Drain(model::RecordBatch* batch);
  // Before the end: appends the windows that threads still have open, which no switch has closed yet.
  void DrainOpenWindows(model::RecordBatch* batch);

  ProbeLosses Losses() const;
  // Sets the process-wide loss counters to Losses().
  void PublishLosses() const;
  const std::vector<model::Capability>& capabilities() const;
  // Time the always-on programs took, while kernel.bpf_stats_enabled is 1.
  void RunTime(uint64_t* ns, uint64_t* runs) const;

 private:
  struct State;
  explicit KernelProbes(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tailspan::probe
