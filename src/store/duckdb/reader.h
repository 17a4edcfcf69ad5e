// Rows of one table out of the file, chunk by chunk, straight into model structs.
#pragma once

#include <fmt/format.h>

#include "base/result.h"
#include "store/duckdb/columns.h"
#include "store/duckdb/handles.h"

namespace tailspan::store::duckdb {

// "SELECT <lead>, <the table's readable columns> FROM table WHERE ..."; `lead` may be empty, else ends with a comma.
template <typename Row>
std::string SelectSql(const Table<Row>& table, const std::string& lead, const std::string& where) {
  std::string columns;
  for (const Column<Row>& column : table.columns()) {
    if (column.read) columns += fmt::format("{}\"{}\"", columns.empty() ? "" : ", ", column.name);
  }
  return fmt::format("SELECT {}{} FROM \"{}\"{}{}", lead, columns, table.name(), where.empty() ? "" : " WHERE ", where);
}

// Positions [at, at + n) of a chunk of such a SELECT, whose lead has `lead_columns` columns, to n fresh rows.
template <typename Row>
void ReadColumns(const Table<Row>& table, duckdb_data_chunk chunk, idx_t lead_columns, size_t at, size_t n, Row* rows) {
  idx_t index = lead_columns;
  for (const Column<Row>& column : table.columns()) {
    if (column.read) column.read(duckdb_data_chunk_get_vector(chunk, index++), at, n, rows);
  }
}

template <typename Row>
base::Status ReadRows(duckdb_connection connection, const Table<Row>& table, const std::string& where,
                      std::vector<Row>* out) {
  std::string from =
      fmt::format("SELECT count(*) FROM \"{}\"{}{}", table.name(), where.empty() ? "" : " WHERE ", where);
  auto count = QueryInteger(connection, from);
  if (!count.ok()) return std::move(count).error();
  if (*count == 0) return {};
  out->reserve(out->size() + static_cast<size_t>(*count));
  Rows result;
  base::Status status = Query(connection, SelectSql(table, "", where), nullptr, &result);
  if (!status.ok()) return status;
  while (true) {
    auto chunk = result.Next();
    if (!chunk.ok()) return std::move(chunk).error().WithContext("table " + table.name());
    if (!*chunk) return {};
    size_t n = duckdb_data_chunk_get_size(chunk->get());
    if (n == 0) return {};
    size_t first = out->size();
    out->resize(first + n);
    ReadColumns(table, chunk->get(), 0, 0, n, out->data() + first);
  }
}

}  // namespace tailspan::store::duckdb
