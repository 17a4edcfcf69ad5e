// Keeps an eye on the followed processes from /proc: what they are, where they keep their span record and loop ring,
// and which of their descriptors are sockets. Everything it finds goes into the batch. Owned by the collecting thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/loss.h"
#include "model/batch.h"
#include "probe/kernel_probes.h"
#include "probe/loop_ring_reader.h"

namespace tailspan::cli {

class ProcessWatch {
 public:
  // `probes` may be null; `ring_drop_per_mille` is a test option: loses this share of the loop records.
  ProcessWatch(probe::KernelProbes* probes, base::LossCounters* loss, uint32_t ring_drop_per_mille);

  void Add(int32_t pid, model::RecordBatch* batch);
  // Looks at new process events in `batch`, finds contexts and rings, drains the rings. Every 20 ms.
  void Update(model::RecordBatch* batch);
  // Descriptors, and without probes children of threads other than the first. Every second.
  void UpdateSlow(model::RecordBatch* batch);

 private:
  struct Watched {
    model::ProcessInfo info;
    int64_t look_until_mono_ns = 0;  // how long to look for a context at each update
    int64_t next_look_mono_ns = 0;
    std::optional<probe::LoopRingReader> ring;
    std::map<int, uint64_t> sockets;  // fd -> inode
    bool gone = false;
  };

  void Look(int32_t pid, Watched* watched, model::RecordBatch* batch);
  void FindChildren(bool of_all_threads, model::RecordBatch* batch);
  void DrainRing(Watched* watched, model::RecordBatch* batch);
  void ScanSockets(int32_t pid, Watched* watched, model::RecordBatch* batch);

  probe::KernelProbes* probes_;
  base::LossCounters* loss_;
  uint32_t ring_drop_per_mille_;
  std::map<int32_t, Watched> processes_;
  std::set<probe::LoopRingReader::Identity> rings_;
};

// From /proc/PID; nullopt when it is gone.
std::optional<model::ProcessInfo> ReadProcessInfo(int32_t pid);

}  // namespace tailspan::cli
