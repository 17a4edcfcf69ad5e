#include "store/duckdb/handles.h"

#include <cstring>

namespace tailspan::store::duckdb {
namespace {

bool Contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

base::Code CodeOf(const std::string& message) {
  if (Contains(message, "No space left") || Contains(message, "File too large") || Contains(message, "Out of Memory") ||
      Contains(message, "quota exceeded") || Contains(message, "not enough disk space")) {
    return base::Code::kResourceExhausted;
  }
  if (Contains(message, "Could not set lock")) return base::Code::kUnavailable;
  if (Contains(message, "Permission denied") || Contains(message, "Read-only file system")) {
    return base::Code::kPermission;
  }
  if (Contains(message, "No such file") || Contains(message, "does not exist")) return base::Code::kNotFound;
  if (Contains(message, "not a valid DuckDB") || Contains(message, "checksum") || Contains(message, "corrupt") ||
      Contains(message, "Serialization Error") || Contains(message, "serialize")) {
    return base::Code::kDataLoss;
  }
  return base::Code::kInternal;
}

}  // namespace

base::Error ErrorFrom(const char* message) {
  std::string text = message ? message : "unknown error";
  base::Code code = CodeOf(text);
  text.resize(std::min(text.find('\n'), text.size()));
  return base::Error{code, "DuckDB: " + text};
}

base::Result<ChunkHandle> Rows::Next() {
  ChunkHandle chunk(duckdb_fetch_chunk(result_));
  if (!chunk) {
    const char* message = duckdb_result_error(&result_);
    if (message && *message) return ErrorFrom(message);
  }
  return chunk;
}

base::Status Execute(duckdb_connection connection, const std::string& sql) {
  duckdb_result result;
  base::Status status;
  if (duckdb_query(connection, sql.c_str(), &result) == DuckDBError) {
    status = ErrorFrom(duckdb_result_error(&result));
  }
  duckdb_destroy_result(&result);
  return status;
}

base::Status Query(duckdb_connection connection, const std::string& sql, const std::string* text, Rows* rows) {
  duckdb_prepared_statement raw_statement = nullptr;
  duckdb_state state = duckdb_prepare(connection, sql.c_str(), &raw_statement);
  StatementHandle statement(raw_statement);
  if (state == DuckDBError) return ErrorFrom(duckdb_prepare_error(statement.get()));
  if (text && duckdb_bind_varchar_length(statement.get(), 1, text->data(), text->size()) == DuckDBError) {
    return ErrorFrom(duckdb_prepare_error(statement.get()));
  }
  duckdb_pending_result raw_pending = nullptr;
  state = duckdb_pending_prepared_streaming(statement.get(), &raw_pending);
  PendingHandle pending(raw_pending);
  if (state == DuckDBError) return ErrorFrom(duckdb_pending_error(pending.get()));
  if (duckdb_execute_pending(pending.get(), rows->raw()) == DuckDBError) {
    return ErrorFrom(duckdb_result_error(rows->raw()));
  }
  return {};
}

base::Result<int64_t> QueryInteger(duckdb_connection connection, const std::string& sql) {
  Rows rows;
  base::Status status = Query(connection, "SELECT (" + sql + ")::BIGINT", nullptr, &rows);
  if (!status.ok()) return std::move(status).error();
  auto chunk = rows.Next();
  if (!chunk.ok()) return std::move(chunk).error();
  if (!*chunk || duckdb_data_chunk_get_size(chunk->get()) == 0) return int64_t{0};
  duckdb_vector vector = duckdb_data_chunk_get_vector(chunk->get(), 0);
  uint64_t* validity = duckdb_vector_get_validity(vector);
  if (validity && !(validity[0] & 1)) return int64_t{0};
  return *static_cast<int64_t*>(duckdb_vector_get_data(vector));
}

}  // namespace tailspan::store::duckdb
