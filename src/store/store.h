// The narrow port through which everything is kept. Stores: duckdb/ (embedded, one file a recording). Each passes the
// same contract tests (store/contract_test.h). Only src/cli names a concrete store.
//
// Threads: one writer, one thread at a time; a Store opened for reading may be used from one thread at a time.
// Durability: what Flush has returned ok for survives SIGKILL of this process. A write that fails leaves the store
// usable and what was flushed before intact (a full disk: kResourceExhausted).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/batch.h"
#include "model/explanation.h"
#include "model/ledger.h"

namespace tailspan::store {

struct TimeWindow {
  int64_t from_unix_ns =
      INT64_MIN;  // spans and ledgers: by start; kernel and loop records: overlapping, by the clock pairs
  int64_t to_unix_ns = INT64_MAX;
};

class Store {
 public:
  virtual ~Store() = default;

  // Writing. Rows may be buffered until Flush; Append of an empty batch is no error.
  virtual base::Status Append(const model::RecordBatch& batch) = 0;
  virtual base::Status PutInfo(const model::RecordingInfo& info) = 0;  // replaces
  virtual base::Status Flush() = 0;

  // Reading sees what was appended. ReadInfo: kNotFound before the first PutInfo. Processes, sites, sockets, process
  // events, loop holes and clock pairs are never cut by the window, and of span changes each thread's last one before
  // it comes along: they say what held when it began. A repeated span (same trace, id and UUID) is returned once, its
  // newest version.
  virtual base::Result<model::RecordingInfo> ReadInfo() = 0;
  virtual base::Result<model::RecordBatch> ReadBatch(const TimeWindow& window) = 0;

  // The ledger pass' result. PutLedgers replaces what is stored for the same (trace, root) and is durable when it
  // returns ok. ReadLedgers gives them by start; an empty operation means all.
  virtual base::Status PutLedgers(const std::vector<model::TraceLedger>& ledgers) = 0;
  virtual base::Result<std::vector<model::TraceLedger>> ReadLedgers(const std::string& operation,
                                                                    const TimeWindow& window) = 0;
};

}  // namespace tailspan::store
