// Replays a recording's arrivals through a queueing model of its own services, to learn how much waiting ordinary
// contention makes by itself (docs/verdict.md, "The replay").
//
// Each request is its arrival and, in order, the pieces of its ledger without the contention pieces: those arise anew
// at the servers, which are the event loop, the GIL, the CPUs, one executor and one lock for each span name that others
// wait for. Each step's demand is capped, so that rare long holds are gone and only the ordinary load is left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/ledger.h"

namespace tailspan::analyze {

inline constexpr double kDemandCapQuantile = 0.9;  // of a step's demand over all requests
inline constexpr int64_t kGilSliceNs = 5'000'000;  // CPython's switch interval
inline constexpr int64_t kCpuSliceNs = 3'000'000;  // the scheduler's base slice
inline constexpr size_t kReplayStepsMax = 4'000'000;

enum class WaitKind : uint8_t { kCpu, kGil, kLoop, kExecutor, kLock };
inline constexpr size_t kWaitKinds = 5;

struct ReplayOptions {
  int cpus = 2;
  bool cap_demands = true;
};

// Waiting for one kind of server while a span of this name was at work there. Where the loop's own step waited for the
// GIL meanwhile, the wait is the GIL's and its holder's, as in a ledger.
struct ReplayedWait {
  WaitKind kind = WaitKind::kCpu;
  uint16_t name = 0;  // index into Replay::names
  double ns = 0;
};

struct ReplayedRequest {
  double total_ns = 0;
  double wait_ns = 0;  // all of `waits`
  std::vector<ReplayedWait> waits;
};

struct Replay {
  bool complete = false;  // false: over kReplayStepsMax, or some request never ended; then nothing is known
  std::vector<std::string> names;
  std::vector<ReplayedRequest> requests;  // as the ledgers
};

// Deterministic. All operations' ledgers take part: they share the servers.
Replay ReplayArrivals(const std::vector<model::TraceLedger>& ledgers, const ReplayOptions& options);

}  // namespace tailspan::analyze
