// Owning handles over DuckDB's C API, and its errors as ours. Nothing above src/store/duckdb sees this header.
#pragma once

#include <duckdb.h>

#include <memory>
#include <string>
#include <type_traits>

#include "base/result.h"

namespace tailspan::store::duckdb {

// unique_ptr for the API's handles: each is a pointer type whose destroy function takes its address and nulls it.
template <auto kDestroy, typename Handle>
struct HandleDeleter {
  using pointer = Handle;
  void operator()(Handle handle) const { kDestroy(&handle); }
};
template <typename Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, HandleDeleter<kDestroy, Handle>>;

using DatabaseHandle = Owned<duckdb_database, duckdb_close>;
using ConnectionHandle = Owned<duckdb_connection, duckdb_disconnect>;
using ConfigHandle = Owned<duckdb_config, duckdb_destroy_config>;
using AppenderHandle = Owned<duckdb_appender, duckdb_appender_destroy>;
using ChunkHandle = Owned<duckdb_data_chunk, duckdb_destroy_data_chunk>;
using TypeHandle = Owned<duckdb_logical_type, duckdb_destroy_logical_type>;
using StatementHandle = Owned<duckdb_prepared_statement, duckdb_destroy_prepare>;
using PendingHandle = Owned<duckdb_pending_result, duckdb_destroy_pending>;

// A query's result; rows come chunk by chunk and are never all in memory.
class Rows {
 public:
  Rows() = default;
  ~Rows() { duckdb_destroy_result(&result_); }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  // An empty handle at the end. An error in mid-stream (a damaged block) is a status.
  base::Result<ChunkHandle> Next();
  duckdb_result* raw() { return &result_; }

 private:
  duckdb_result result_{};
};

// DuckDB's message as one line of ours, with the code that its text or type tells.
base::Error ErrorFrom(const char* message);

// Runs one or more statements and drops what they return.
base::Status Execute(duckdb_connection connection, const std::string& sql);
// Runs one statement; `text`, when given, is bound to its only parameter.
base::Status Query(duckdb_connection connection, const std::string& sql, const std::string* text, Rows* rows);
// The single integer that a query returns; 0 for NULL or no row.
base::Result<int64_t> QueryInteger(duckdb_connection connection, const std::string& sql);

}  // namespace tailspan::store::duckdb
