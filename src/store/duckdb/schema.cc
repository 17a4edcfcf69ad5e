#include <fmt/format.h>

#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
namespace {

std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') out += '\'';
    out += c;
  }
  return out + "'";
}

std::string EnumSql(const EnumType& type) {
  std::string names;
  for (const std::string& name : type.names) names += (names.empty() ? "" : ", ") + Quoted(name);
  return fmt::format("CREATE TYPE \"{}\" AS ENUM ({});\n", type.sql_name, names);
}

template <typename Row>
std::string TableSql(const Table<Row>& table) {
  std::string columns, comments = fmt::format("COMMENT ON TABLE \"{}\" IS {};\n", table.name(), Quoted(table.doc()));
  for (const Column<Row>& column : table.columns()) {
    columns += fmt::format("{}\"{}\" {}", columns.empty() ? "" : ", ", column.name, column.sql_type);
    comments += fmt::format("COMMENT ON COLUMN \"{}\".\"{}\" IS {};\n", table.name(), column.name, Quoted(column.doc));
  }
  return fmt::format("CREATE TABLE \"{}\" ({});\n{}", table.name(), columns, comments);
}

}  // namespace

const std::vector<View>& Views() {
  static const std::vector<View> views = {
      {"span_newest", "Spans, each once in its newest version, with ids and times as people read them.",
       "SELECT *, replace(trace_id::VARCHAR, '-', '') AS trace_id_hex, format('{:016x}', span_id) AS span_id_hex, "
       "make_timestamp_ns(start_unix_ns) AS start_time, (end_unix_ns - start_unix_ns) / 1e6 AS duration_ms "
       "FROM span QUALIFY row_number() OVER (PARTITION BY trace_id, span_id, uuid ORDER BY rowid DESC) = 1"},
      {"ledger", "The ledger's pieces with their request, span path and duration.",
       "SELECT t.operation, replace(p.trace_id::VARCHAR, '-', '') AS trace_id_hex, "
       "make_timestamp_ns(t.start_unix_ns) AS start_time, t.duration_ns, t.failed, t.weight, t.revision, "
       "p.start_ns, p.end_ns, p.end_ns - p.start_ns AS piece_ns, format('{:016x}', p.span_id) AS span_id_hex, "
       "n.names[-1] AS span, n.names AS span_path, p.cause, p.blame_kind, p.blame_name, p.blame_detail, p.blame_how, "
       "p.blame_confidence, p.summed, p.joined_by, p.evidence "
       "FROM trace_piece p JOIN trace t USING (ledger_id) JOIN trace_path n USING (ledger_id, path)"},
      {"wait", "Long waits of followed threads, split into their blocked and their runnable part.",
       "SELECT pid, tid, process_start_mono_ns, replace(trace_id::VARCHAR, '-', '') AS trace_id_hex, "
       "format('{:016x}', span_id) AS span_id_hex, wait_start_mono_ns, wait_end_mono_ns, cause, "
       "coalesce(wake_mono_ns, wait_end_mono_ns) - wait_start_mono_ns AS blocked_ns, "
       "wait_end_mono_ns - coalesce(wake_mono_ns, wait_end_mono_ns) AS run_queue_ns, "
       "target_kind, target_name, target_remote_address, target_remote_port, waker_kind, waker_pid, waker_tid, "
       "waker_comm, occupant1_pid, occupant1_comm, occupant1_ns "
       "FROM thread_interval WHERE wait_end_mono_ns > wait_start_mono_ns"},
  };
  return views;
}

std::string SchemaSql() {
  std::string sql = "BEGIN;\nCREATE TABLE tailspan_schema (version INTEGER, library_version VARCHAR);\n";
  sql += "COMMENT ON TABLE tailspan_schema IS 'One row: the version of these tables.';\n";
  sql += "COMMENT ON COLUMN tailspan_schema.version IS 'version of these tables';\n";
  sql += "COMMENT ON COLUMN tailspan_schema.library_version IS 'the DuckDB release that made the file';\n";
  sql += fmt::format("INSERT INTO tailspan_schema VALUES ({}, version());\n", kSchemaVersion);
  for (const EnumType& type : EnumTypes()) sql += EnumSql(type);
  ForEachTable([&](const auto& table) { sql += TableSql(table); });
  for (const View& view : Views()) {
    sql += fmt::format("CREATE VIEW \"{}\" AS {};\nCOMMENT ON VIEW \"{}\" IS {};\n", view.name, view.sql, view.name,
                       Quoted(view.doc));
  }
  return sql + "COMMIT;\n";
}

}  // namespace tailspan::store::duckdb
