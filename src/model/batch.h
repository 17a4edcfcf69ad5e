// A batch of everything that a recording holds, on its way into a store or out of one. Rows of one host.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "model/ids.h"
#include "model/kernel.h"
#include "model/loop.h"
#include "model/span.h"

namespace tailspan::model {

// A process that was followed, or that is blamed. Facts that do not fit a row of each record.
struct ProcessInfo {
  ProcessKey key;
  int32_t parent_pid = 0;
  int64_t end_mono_ns = 0;  // 0: still runs
  std::string comm;
  std::string command;  // arguments joined by blanks, cut at 256 bytes
  std::string cgroup;
  std::string runtime;  // "cpython 3.11.2", "" unknown
  bool has_loop_ring = false;
};

struct RecordBatch {
  HostKey host;
  std::vector<Span> spans;
  std::vector<ThreadInterval> intervals;
  std::vector<ProcessEvent> process_events;
  std::vector<ProcessInfo> processes;  // newest state wins by key
  std::vector<Retransmission> retransmissions;
  std::vector<SocketInfo> sockets;
  std::vector<SocketReady> sockets_ready;
  std::vector<BlockRequest> block_requests;
  std::vector<CpuSample> cpu_samples;
  std::vector<LoopStep> steps;
  std::vector<LoopSite> sites;
  std::vector<SpanChange> span_changes;
  std::vector<LoopPoll> polls;
  std::vector<LoopHole> loop_holes;
  std::vector<GcPause> gc_pauses;
  std::vector<base::ClockPair> clock_pairs;
};

// What is known about a recording as a whole.
struct RecordingInfo {
  int32_t schema_version = 0;
  std::string tailspan_version;
  HostKey host;
  std::string name;
  std::vector<std::string> command;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;                      // 0: it was cut off
  std::map<std::string, std::string> manifest;  // kernel, python, probe options ...
  std::vector<Capability> capabilities;
  std::map<std::string, uint64_t> loss;
};

}  // namespace tailspan::model
