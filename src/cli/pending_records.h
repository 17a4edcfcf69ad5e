// What has been collected and waits for the store. Bounded, because a store that cannot keep up (a slow disk) must not
// take the memory that the command needs.
//
// Once as much waits as may, what comes is left out and counted (shed_under_load for spans, records_shed for the rest)
// until the store has taken some: the recording then lacks whole stretches of time, the same for every kind of record.
// What was lost of an event loop is told as a hole; kernel records show theirs by their numbers. What says what held
// (processes, sites, sockets, holes, clocks) is little and needed to read the rest: it has an eighth on top.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/loss.h"
#include "model/batch.h"

namespace tailspan::cli {

class PendingRecords {
 public:
  // `bytes_max`: of rows, as they stand in memory; room that vectors keep for more comes on top, and so does the batch
  // with which the bound is reached.
  PendingRecords(size_t bytes_max, base::LossCounters* loss) : bytes_max_(bytes_max), loss_(loss) {}

  void Add(model::RecordBatch&& batch);
  // All that waits, and the holes of what was left out. It goes on counting until Written.
  model::RecordBatch Take();
  // What was taken is in memory no more.
  void Written() { taken_bytes_ = 0; }

  size_t bytes() const { return waiting_bytes_ + taken_bytes_; }  // as they count

 private:
  void Shed(model::RecordBatch* batch);
  void ShedLoopRecords(model::RecordBatch* batch);

  size_t bytes_max_;
  base::LossCounters* loss_;
  model::RecordBatch waiting_;
  size_t waiting_bytes_ = 0, taken_bytes_ = 0;
  std::map<std::pair<int32_t, int32_t>, model::LoopHole> holes_;  // by pid and tid
};

}  // namespace tailspan::cli
