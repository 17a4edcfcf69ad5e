#include "store/duckdb/writer.h"

namespace tailspan::store::duckdb {
namespace {

base::Error AppenderError(duckdb_appender appender) {
  duckdb_error_data data = duckdb_appender_error_data(appender);
  base::Error error = ErrorFrom(duckdb_error_data_message(data));
  duckdb_destroy_error_data(&data);
  return error;
}

}  // namespace

base::Status ChunkWriter::Open() {
  duckdb_appender raw = nullptr;
  duckdb_state state = duckdb_appender_create(connection_, nullptr, table_.c_str(), &raw);
  appender_.reset(raw);
  if (state == DuckDBError) {
    base::Error error = AppenderError(raw);
    appender_.reset();
    return std::move(error).WithContext("table " + table_);
  }
  std::vector<TypeHandle> owned;
  std::vector<duckdb_logical_type> types;
  for (idx_t i = 0; i < duckdb_appender_column_count(raw); ++i) {
    owned.emplace_back(duckdb_appender_column_type(raw, i));
    types.push_back(owned.back().get());
  }
  chunk_.reset(duckdb_create_data_chunk(types.data(), types.size()));
  filled_ = 0;
  return {};
}

base::Status ChunkWriter::PushChunk() {
  if (filled_ == 0) return {};
  duckdb_data_chunk_set_size(chunk_.get(), filled_);
  duckdb_state state = duckdb_append_data_chunk(appender_.get(), chunk_.get());
  duckdb_data_chunk_reset(chunk_.get());
  filled_ = 0;
  if (state == DuckDBError) return AppenderError(appender_.get()).WithContext("table " + table_);
  return {};
}

base::Status ChunkWriter::Flush() {
  if (pending_rows_ == 0) return {};
  base::Status status = PushChunk();
  if (!status.ok()) return status;
  if (duckdb_appender_flush(appender_.get()) == DuckDBError) {
    return AppenderError(appender_.get()).WithContext("table " + table_);
  }
  pending_rows_ = 0;
  return {};
}

uint64_t ChunkWriter::Abandon() {
  uint64_t lost = pending_rows_;
  pending_rows_ = 0;
  // Destroying an appender flushes it: it must have nothing left.
  if (appender_) duckdb_appender_clear(appender_.get());
  appender_.reset();
  chunk_.reset();
  filled_ = 0;
  return lost;
}

}  // namespace tailspan::store::duckdb
