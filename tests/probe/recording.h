// Runs a command under the kernel probes and keeps everything they told, for tests and the dump tool.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model/batch.h"
#include "probe/kernel_probes.h"

namespace tailspan::probe_test {

struct Recording {
  model::RecordBatch batch;
  probe::ProbeLosses losses;
  std::vector<model::Capability> capabilities;
  int32_t pid = 0;
  int status = 0;      // as wait(2) gives it
  std::string output;  // the command's standard output
};

// The command starts only once it is followed. Its standard output is read when it has ended: keep it below a pipe's
// capacity of 64 KiB, or write to a file.
base::Result<Recording> RecordCommand(const std::vector<std::string>& command,
                                      const probe::KernelProbesOptions& options);

}  // namespace tailspan::probe_test
