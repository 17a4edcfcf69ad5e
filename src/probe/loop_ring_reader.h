// Reads the loop ring of one process from outside (src/context/loop_ring.h) into model structs.
//
// The ring's memory belongs to the process, which may be hostile: it is read with pread from a memfd sealed against
// shrinking (so there is no SIGBUS and no allocation on its behalf), every number is checked, and what is not plausible
// is counted and dropped. A process can thus lie about its own spans and steps, and about nothing else.
// The open memfd outlives the process: drain once more after it exits or execs, then drop the reader.
// A process in a pid namespace below ours writes its own numbers of threads; they are told as ours, which the kernel's
// records have too, except those of threads that ended before they were looked up.
// Not thread-safe. Call Drain at least every 20 ms for loops of 300,000 steps/s; what is lapped is counted.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "base/loss.h"
#include "base/result.h"
#include "model/batch.h"
#include "probe/process_context.h"

namespace tailspan::probe {

class LoopRingReader {
 public:
  // The ring that `context` advertises, by its descriptor, or, if the program closed that, by its mapping (which takes
  // CAP_SYS_ADMIN). kNotFound: it has none. kDataLoss: not a valid ring; also counted.
  static base::Result<LoopRingReader> Open(int32_t pid, const ProcessContext& context, base::LossCounters* loss);
  // Takes the descriptor of a memfd, whatever becomes of it.
  static base::Result<LoopRingReader> FromDescriptor(int32_t pid, int fd, base::LossCounters* loss);

  LoopRingReader(LoopRingReader&& other) noexcept;
  LoopRingReader& operator=(LoopRingReader&& other) noexcept;
  ~LoopRingReader();

  // Appends everything written since the last call. False when the memfd could not be read.
  // Steps come when they end; records of one thread come in the order of their ends, threads one after another.
  bool Drain(model::RecordBatch* batch);

  // Test option: loses this share of the records on purpose, counted.
  void DropOnPurpose(uint32_t per_mille) { drop_per_mille_ = per_mille; }

  // Names the memfd. Two readers of one identity read the same ring (a vfork child's, before its exec).
  struct Identity {
    uint64_t device = 0, inode = 0;
    auto operator<=>(const Identity&) const = default;
  };
  Identity identity() const { return identity_; }

 private:
  struct Slot {
    uint64_t next = 0;        // index of the first record not read
    int64_t last_end_ns = 0;  // of the last record read
    uint64_t lost = 0;        // since then
    uint32_t tid = 0;
  };

  LoopRingReader(int32_t pid, int fd, Identity identity, base::LossCounters* loss);
  bool ReadAll(void* to, size_t size, uint64_t at) const;
  bool DrainSlot(uint32_t index, uint64_t head, model::RecordBatch* batch);
  void Take(Slot* slot, const void* bytes, int64_t now_ns, model::RecordBatch* batch);
  void DrainSites(uint32_t used, model::RecordBatch* batch);
  uint32_t OuterTid(uint32_t inner_tid);
  uint64_t OuterStep(uint64_t step);
  void Lose(Slot* slot, base::Loss why, uint64_t count);

  int32_t pid_;
  int fd_;
  Identity identity_;
  base::LossCounters* loss_;
  std::vector<Slot> slots_;
  std::vector<uint8_t> buffer_;
  uint32_t sites_read_ = 1;  // site 0 is none
  uint32_t threads_lost_ = 0, sites_lost_ = 0;
  uint32_t drop_per_mille_ = 0;
  std::minstd_rand random_;
  bool is_namespaced_ = false;
  std::map<uint32_t, uint32_t> outer_tids_;  // by the process's own number
  int64_t tids_read_mono_ns_ = 0;
};

}  // namespace tailspan::probe
