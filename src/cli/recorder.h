// One recording: receiver, kernel probes and loop rings on one side, a store on the other.
//
// Two threads of its own beside the receiver's: the collecting one drains probes and rings every 20 ms; the writing one
// appends what has gathered every quarter second and makes it durable every second, so that a killed tailspan loses at
// most two seconds. What waits in between is bounded (pending_records.h). What cannot be had (no root, no BTF) is a
// line of capabilities(), not an error; an unwritable file is one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/loss.h"
#include "base/result.h"
#include "cli/caller.h"
#include "cli/pending_records.h"
#include "collect/receiver.h"
#include "model/batch.h"
#include "probe/kernel_probes.h"
#include "store/store.h"

namespace tailspan::cli {

class ProcessWatch;

struct RecorderOptions {
  std::string file;
  std::string name;
  std::vector<std::string> command;
  uint16_t port = 0;
  bool keep_content = false;
  bool use_probes = true;
  probe::KernelProbesOptions probes;
  uint32_t ring_drop_per_mille = 0;  // test option: loses loop records on purpose, counted
  std::string status_folder;         // where the Python package leaves what it could not do; "" none
  bool files_as_caller = true;       // under sudo the file is made by the user who called it, where that user may
  size_t pending_bytes_max = 0;      // what may wait for the store; 0: an eighth of the memory, at most 1 GiB
  // Makes the store that is written to; null: DuckDB's. `file` is `file` above.
  std::function<base::Result<std::unique_ptr<store::Store>>(const std::string& file)> make_store;
};

class Recorder {
 public:
  static base::Result<std::unique_ptr<Recorder>> Start(const RecorderOptions& options);
  ~Recorder();

  uint16_t port() const { return receiver_->port(); }
  bool probes_on() const { return probes_ != nullptr; }
  // As whom the recording's files are opened; nullopt: as who tailspan is.
  const std::optional<Caller>& file_user() const { return file_user_; }
  // Takes in a process and, from now on, its children. Best before it runs.
  base::Status Follow(int32_t pid);
  // After the command has ended: takes what clients still send, the probes' last records, and closes the file.
  base::Status Finish();

  uint64_t spans_received() const { return spans_received_; }
  // The first failure to write, if there was one; recording goes on as far as it can.
  base::Status write_status() const;

 private:
  explicit Recorder(const RecorderOptions& options);

  base::Status OpenStore();
  base::Status Begin();  // with store_ open
  void TakeSpans(std::vector<model::Span>&& spans);
  void AddClockPair();
  void CollectLoop();
  void WriteLoop();
  void DrainOnce(bool last);
  base::Status WriteOnce(bool flush);

  RecorderOptions options_;
  model::RecordingInfo info_;
  std::optional<Caller> file_user_;
  std::unique_ptr<store::Store> store_;  // used as file_user_ only
  std::unique_ptr<collect::Receiver> receiver_;
  std::unique_ptr<probe::KernelProbes> probes_;
  std::unique_ptr<ProcessWatch> watch_;
  std::mutex collect_mutex_;  // probes_, watch_

  mutable std::mutex mutex_;  // what stands below
  std::condition_variable wake_;
  PendingRecords pending_;
  base::Status write_status_;
  uint64_t spans_received_ = 0;
  bool stopping_ = false;
  bool finished_ = false;
  std::thread collector_, writer_;
};

}  // namespace tailspan::cli
