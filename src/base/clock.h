// The two clocks of this project and the way between them.
//
// Kernel records and loop steps carry CLOCK_MONOTONIC; spans carry Unix time. Both are int64 nanoseconds, named
// *_mono_ns and *_unix_ns. A recording samples the pair and ClockMap interpolates between the samples.
#pragma once

#include <cstdint>
#include <vector>

namespace tailspan::base {

int64_t MonoNowNs();
int64_t UnixNowNs();

struct ClockPair {
  int64_t mono_ns = 0;
  int64_t unix_ns = 0;
  int64_t error_ns = 0;  // half the time that taking the pair took: the pair is no better than this
};

// Takes the pair several times and keeps the tightest.
ClockPair SampleClockPair();

// Maps Unix time to monotonic time and back by linear interpolation between samples, and by the nearest sample's offset
// outside them. Exact inverse only to the rounding of one nanosecond. Immutable after construction; thread-safe.
class ClockMap {
 public:
  ClockMap() = default;
  explicit ClockMap(std::vector<ClockPair> pairs);  // any order; may be empty (then both clocks are taken as equal)

  int64_t MonoFromUnix(int64_t unix_ns) const;
  int64_t UnixFromMono(int64_t mono_ns) const;
  int64_t error_ns() const { return error_ns_; }  // the largest pair error: nothing is ordered more finely
  bool empty() const { return pairs_.empty(); }

 private:
  std::vector<ClockPair> pairs_;  // by mono_ns
  int64_t error_ns_ = 0;
};

}  // namespace tailspan::base
