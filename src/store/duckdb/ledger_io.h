// Windows as SQL, repeated rows, and ledgers with their pieces out of their three tables.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/batch.h"
#include "model/ledger.h"
#include "store/duckdb/columns.h"
#include "store/duckdb/handles.h"
#include "store/store.h"

namespace tailspan::store::duckdb {

// A window as the condition of each table, in that table's clock.
class WindowSql {
 public:
  WindowSql(const TimeWindow& window, const base::ClockMap& clock);
  // Empty when no row is left out.
  std::string For(const WindowColumns& columns, const std::string& table) const;

 private:
  TimeWindow window_;
  int64_t from_mono_ns_, to_mono_ns_;
};

// Leaves the last one of repeated spans and of repeated processes, at the place of the first.
void KeepNewest(model::RecordBatch* batch);

// Indexes of the ledgers that are not followed by one of the same (trace, root).
std::vector<size_t> LastOfEach(const std::vector<model::TraceLedger>& ledgers);
// Removes what is stored for the (trace, root) of `ledgers`; returns the first free ledger id.
base::Result<uint64_t> RemoveLedgers(duckdb_connection connection, const std::vector<model::TraceLedger>& ledgers);
// By start, then trace id. Empty operation: all.
base::Result<std::vector<model::TraceLedger>> ReadLedgers(duckdb_connection connection, const std::string& operation,
                                                          const TimeWindow& window);

}  // namespace tailspan::store::duckdb
