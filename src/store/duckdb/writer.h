// Rows on their way into one table: collected in one chunk of 2,048, chunks handed to DuckDB's appender, which keeps
// them in memory until Flush. Not thread-safe; belongs to one connection.
#pragma once

#include "base/result.h"
#include "store/duckdb/columns.h"
#include "store/duckdb/handles.h"

namespace tailspan::store::duckdb {

class ChunkWriter {
 public:
  virtual ~ChunkWriter() = default;

  // Gives all rows to the connection's current transaction.
  base::Status Flush();
  // Forgets rows that are not flushed; returns how many they were. The writer is usable again.
  uint64_t Abandon();
  uint64_t pending_rows() const { return pending_rows_; }

 protected:
  ChunkWriter(duckdb_connection connection, std::string table) : connection_(connection), table_(std::move(table)) {}
  base::Status Open();
  base::Status PushChunk();

  duckdb_connection connection_;
  std::string table_;
  AppenderHandle appender_;
  ChunkHandle chunk_;
  idx_t filled_ = 0;
  uint64_t pending_rows_ = 0;  // in the chunk and in the appender
};

template <typename Row>
class TableWriter : public ChunkWriter {
 public:
  TableWriter(duckdb_connection connection, const Table<Row>& table)
      : ChunkWriter(connection, table.name()), table_columns_(table.columns()) {}

  base::Status Append(const Row* rows, size_t n, WriteContext& context) {
    if (!appender_) {
      base::Status status = Open();
      if (!status.ok()) return status;
    }
    const size_t chunk_rows = duckdb_vector_size();
    while (n > 0) {
      size_t count = std::min<size_t>(n, chunk_rows - filled_);
      for (size_t i = 0; i < table_columns_.size(); ++i) {
        table_columns_[i].write(rows, count, duckdb_data_chunk_get_vector(chunk_.get(), i), filled_, context);
      }
      filled_ += count, pending_rows_ += count;
      rows += count, n -= count;
      if (filled_ == chunk_rows) {
        base::Status status = PushChunk();
        if (!status.ok()) return status;
      }
    }
    return {};
  }

 private:
  const std::vector<Column<Row>>& table_columns_;
};

}  // namespace tailspan::store::duckdb
