// The embedded store: one DuckDB file a recording, readable by any DuckDB client while nothing writes it.
// docs/schema.md lists its tables; each column also carries its description in the file.
//
// While a Store is open for writing, the file is locked against every other process, and FILE.wal holds what was
// flushed and not yet folded in. After a crash the next Open folds it in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/loss.h"
#include "base/result.h"
#include "store/store.h"

namespace tailspan::store::duckdb {

struct Options {
  // Memory DuckDB may use for its own buffers; what is read comes on top of it.
  uint64_t memory_bytes_max = 512ull << 20;
  // FILE.wal is folded in when it is longer than this. Folding in costs the more the longer the recording is: at 64 MB
  // a row costs half of what it costs at 16 MB; what is in the log costs the next Open after a crash its replay.
  uint64_t log_bytes_max = 64ull << 20;
  // Counts rows that could not be written (store_write_failed) and text that was not UTF-8.
  base::LossCounters* loss = &base::LossCounters::Global();
};

enum class Access { kReadOnly, kReadWrite };

// A new, empty recording. kInvalidArgument when FILE or FILE.wal exists, kNotFound when its folder does not.
base::Result<std::unique_ptr<Store>> Create(const std::string& path, const Options& options = {});

// A finished or crashed recording. kNotFound; kUnavailable while another process writes it; kDataLoss when it is no
// recording, damaged, or of another schema version. kReadOnly also works on a file that this user cannot write, unless
// FILE.wal has to be folded in first.
base::Result<std::unique_ptr<Store>> Open(const std::string& path, Access access, const Options& options = {});

}  // namespace tailspan::store::duckdb
