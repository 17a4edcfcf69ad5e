// Replays a recording's arrivals through a queueing model of its own services, to learn how much waiting ordinary
// contention makes by itself (docs/verdict.md, "The replay").
//
// Each request is its arrival and, in order, the pieces of its ledger without the contention pieces: those arise anew
// at the servers, which are the event loop, the GIL, the CPUs, one executor and one lock for each span name that others
// wait for. Each step's demand is capped, so that rare long holds are gone and only the ordinary load is left.
#pragma once

#include <array>
#include <cstdint>
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

struct ReplayedRequest {
  double total_ns = 0;
  std::array<double, kWaitKinds> wait_ns{};
  double contention_ns() const;
};

struct Replay {
  bool complete = false;  // false: over kReplayStepsMax, or some request never ended; then nothing is known
  std::vector<ReplayedRequest> requests;  // as the ledgers
};

// Deterministic. All operations' ledgers take part: they share the servers.
Replay ReplayArrivals(const std::vector<model::TraceLedger>& ledgers, const ReplayOptions& options);

}  // namespace tailspan::analyze
