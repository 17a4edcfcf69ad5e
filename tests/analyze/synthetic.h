// Populations whose truth is known: an asyncio-like service as a queueing model of its own, written apart from the
// analyser's replay. One loop serves steps in order of readiness; between steps a request waits for a peer.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "model/ledger.h"

namespace tailspan::synthetic {

enum class StepLaw { kLognormal, kExponential };

struct Service {
  size_t requests = 2000;
  double load = 0.6;   // of the loop by ordinary steps
  double step_ms = 4;  // mean of a loop step
  int steps = 2;       // a request: step, peer, step, ...
  StepLaw law = StepLaw::kLognormal;
  double sigma = 0.5;   // of the lognormal step
  double peer_ms = 15;  // median of the peer's answer, lognormal
  double peer_sigma = 0.3;
  double burst = 1;  // arrivals come in groups of this mean size

  // Faults.
  double pause_share = 0;  // of requests whose peer wait is preceded by a page fault of `pause_ms`
  double pause_ms = 400;
  double holds_per_second = 0;  // another thread holds the GIL for `hold_ms`, for the request "POST /upload"
  double hold_ms = 300;
  double block_share = 0;  // of requests whose first step blocks the loop on a disk read of `block_ms`
  double block_ms = 200;
  double size_ms_per_unit = 0;   // the peer's answer grows with the request's size (lognormal units, median 1)
  double unexplained_share = 0;  // of each peer wait that no record explains

  uint64_t seed = 1;
};

// Ledgers of "POST /ask", and of "POST /upload" when there are holds. Each keeps the ledger's law.
std::vector<model::TraceLedger> Simulate(const Service& service);

}  // namespace tailspan::synthetic
