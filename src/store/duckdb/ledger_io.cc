#include "store/duckdb/ledger_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "store/duckdb/reader.h"
#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
namespace {

struct RootKey {
  model::TraceId trace_id;
  model::SpanId root_id;
  bool operator==(const RootKey&) const = default;
};
struct RootKeyHash {
  size_t operator()(const RootKey& key) const {
    return model::ForeignNumberHash()(model::IdHash()(key.trace_id) ^ key.root_id);
  }
};

struct SpanKey {
  RootKey id;
  model::Uuid uuid;
  bool operator==(const SpanKey&) const = default;
};
struct SpanKeyHash {
  size_t operator()(const SpanKey& key) const { return RootKeyHash()(key.id) * 31 + model::IdHash()(key.uuid); }
};

struct ProcessKeyHash {
  size_t operator()(const model::ProcessKey& key) const {
    return std::hash<int64_t>()(key.start_mono_ns * 31 + key.pid);
  }
};

template <typename Hash, typename Row, typename KeyOf>
void KeepLast(std::vector<Row>* rows, KeyOf key_of) {
  std::unordered_map<std::decay_t<decltype(key_of(rows->front()))>, size_t, Hash> places;
  places.reserve(rows->size());
  size_t kept = 0;
  for (size_t i = 0; i < rows->size(); ++i) {
    auto [place, is_new] = places.try_emplace(key_of((*rows)[i]), kept);
    if (place->second != i) (*rows)[place->second] = std::move((*rows)[i]);
    if (is_new) ++kept;
  }
  rows->resize(kept);
}

constexpr char kLedgerLead[] = "ledger_id, trace_id, root_id, ";

// Calls visit(ledger id, chunk, first position, count) for each run of rows of one ledger. A SELECT that starts with
// ledger_id.
template <typename Visit>
base::Status ForEachRun(duckdb_connection connection, const std::string& sql, const std::string* text, Visit visit) {
  Rows result;
  base::Status status = Query(connection, sql, text, &result);
  if (!status.ok()) return status;
  while (true) {
    auto chunk = result.Next();
    if (!chunk.ok()) return std::move(chunk).error();
    size_t n = *chunk ? duckdb_data_chunk_get_size(chunk->get()) : 0;
    if (n == 0) return {};
    const auto* ids = DataOf<uint64_t>(duckdb_data_chunk_get_vector(chunk->get(), 0));
    for (size_t at = 0; at < n;) {
      size_t end = at + 1;
      while (end < n && ids[end] == ids[at]) ++end;
      visit(ids[at], chunk->get(), at, end - at);
      at = end;
    }
  }
}

using LedgerIndex = std::unordered_map<uint64_t, size_t>;

base::Status ReadTraces(duckdb_connection connection, const std::string& where, const std::string* operation,
                        std::vector<model::TraceLedger>* ledgers, LedgerIndex* index) {
  return ForEachRun(connection, SelectSql(TraceTable(), kLedgerLead, where), operation,
                    [&](uint64_t id, duckdb_data_chunk chunk, size_t at, size_t n) {
                      index->emplace(id, ledgers->size());
                      model::TraceLedger& ledger = ledgers->emplace_back();
                      ledger.trace_id =
                          FromUuidValue(DataOf<duckdb_hugeint>(duckdb_data_chunk_get_vector(chunk, 1))[at]);
                      ledger.root_id = DataOf<uint64_t>(duckdb_data_chunk_get_vector(chunk, 2))[at];
                      ReadColumns(TraceTable(), chunk, 3, at, std::min<size_t>(n, 1), &ledger);
                    });
}

base::Status ReadPaths(duckdb_connection connection, const std::string& where, const std::string* operation,
                       const LedgerIndex& index, std::vector<model::TraceLedger>* ledgers) {
  std::vector<PathRow> rows;
  return ForEachRun(connection, SelectSql(TracePathTable(), "ledger_id, ", where), operation,
                    [&](uint64_t id, duckdb_data_chunk chunk, size_t at, size_t n) {
                      auto found = index.find(id);
                      if (found == index.end()) return;
                      rows.assign(n, {});
                      ReadColumns(TracePathTable(), chunk, 1, at, n, rows.data());
                      auto& paths = (*ledgers)[found->second].paths;
                      for (PathRow& row : rows) {
                        if (row.path >= paths.size()) paths.resize(row.path + 1);
                        paths[row.path] = std::move(row.names);
                      }
                    });
}

base::Status ReadPieces(duckdb_connection connection, const std::string& where, const std::string* operation,
                        const LedgerIndex& index, std::vector<model::TraceLedger>* ledgers) {
  return ForEachRun(connection, SelectSql(TracePieceTable(), "ledger_id, ", where), operation,
                    [&](uint64_t id, duckdb_data_chunk chunk, size_t at, size_t n) {
                      auto found = index.find(id);
                      if (found == index.end()) return;
                      auto& pieces = (*ledgers)[found->second].pieces;
                      size_t first = pieces.size();
                      pieces.resize(first + n);
                      ReadColumns(TracePieceTable(), chunk, 1, at, n, pieces.data() + first);
                    });
}

}  // namespace

WindowSql::WindowSql(const TimeWindow& window, const base::ClockMap& clock)
    : window_(window),
      from_mono_ns_(window.from_unix_ns == INT64_MIN ? INT64_MIN : clock.MonoFromUnix(window.from_unix_ns)),
      to_mono_ns_(window.to_unix_ns == INT64_MAX ? INT64_MAX : clock.MonoFromUnix(window.to_unix_ns)) {}

std::string WindowSql::For(const WindowColumns& columns, const std::string& table) const {
  if (columns.from.empty()) return {};
  int64_t from_ns = columns.is_unix ? window_.from_unix_ns : from_mono_ns_;
  int64_t to_ns = columns.is_unix ? window_.to_unix_ns : to_mono_ns_;
  std::string sql;
  if (from_ns != INT64_MIN) {
    sql = fmt::format("(\"{}\" >= {}", columns.to, from_ns);
    if (table == SpanChangeTable().name()) {
      // The change before the window says which span each thread had when it began.
      sql += fmt::format(
          " OR rowid IN (SELECT arg_max(rowid, at_mono_ns) FROM \"{}\" WHERE at_mono_ns < {} GROUP BY pid, tid)", table,
          from_ns);
    }
    sql += ")";
  }
  if (to_ns != INT64_MAX) sql += fmt::format("{}\"{}\" < {}", sql.empty() ? "" : " AND ", columns.from, to_ns);
  return sql;
}

void KeepNewest(model::RecordBatch* batch) {
  KeepLast<SpanKeyHash>(&batch->spans, [](const model::Span& span) {
    return SpanKey{{span.trace_id, span.span_id}, span.uuid};
  });
  KeepLast<ProcessKeyHash>(&batch->processes, [](const model::ProcessInfo& process) { return process.key; });
}

std::vector<size_t> LastOfEach(const std::vector<model::TraceLedger>& ledgers) {
  std::unordered_set<RootKey, RootKeyHash> seen;
  std::vector<size_t> last;
  for (size_t i = ledgers.size(); i-- > 0;) {
    if (seen.insert({ledgers[i].trace_id, ledgers[i].root_id}).second) last.push_back(i);
  }
  std::reverse(last.begin(), last.end());
  return last;
}

base::Result<uint64_t> RemoveLedgers(duckdb_connection connection, const std::vector<model::TraceLedger>& ledgers) {
  std::unordered_set<RootKey, RootKeyHash> roots;
  for (const auto& ledger : ledgers) roots.insert({ledger.trace_id, ledger.root_id});
  std::vector<model::TraceLedger> stored;
  LedgerIndex index;
  base::Status status = ReadTraces(connection, "", nullptr, &stored, &index);
  if (!status.ok()) return std::move(status).error();
  uint64_t next_id = 1;
  std::string ids;
  size_t replaced = 0;
  for (const auto& [id, place] : index) {
    next_id = std::max(next_id, id + 1);
    if (!roots.count({stored[place].trace_id, stored[place].root_id})) continue;
    ids += fmt::format("{}{}", replaced++ ? "," : "", id);
  }
  if (replaced == 0) return next_id;
  std::string where = replaced == stored.size() ? "" : " WHERE ledger_id IN (" + ids + ")";
  for (const char* table : {"trace", "trace_path", "trace_piece"}) {
    status = Execute(connection, fmt::format("DELETE FROM {}{}", table, where));
    if (!status.ok()) return std::move(status).error();
  }
  return next_id;
}

base::Result<std::vector<model::TraceLedger>> ReadLedgers(duckdb_connection connection, const std::string& operation,
                                                          const TimeWindow& window) {
  std::string where = WindowSql(window, {}).For(TraceTable().window(), TraceTable().name());
  if (!operation.empty()) where = "operation = $1" + (where.empty() ? "" : " AND " + where);
  const std::string* text = operation.empty() ? nullptr : &operation;
  std::string of_these = where.empty() ? "" : "ledger_id IN (SELECT ledger_id FROM trace WHERE " + where + ")";

  std::vector<model::TraceLedger> ledgers;
  LedgerIndex index;
  base::Status status = ReadTraces(connection, where, text, &ledgers, &index);
  if (status.ok()) status = ReadPaths(connection, of_these, text, index, &ledgers);
  if (status.ok()) status = ReadPieces(connection, of_these, text, index, &ledgers);
  if (!status.ok()) return std::move(status).error();
  auto by_start = [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; };
  for (model::TraceLedger& ledger : ledgers) {
    // A filter is a join, which promises no order.
    if (!std::is_sorted(ledger.pieces.begin(), ledger.pieces.end(), by_start)) {
      std::sort(ledger.pieces.begin(), ledger.pieces.end(), by_start);
    }
  }
  std::sort(ledgers.begin(), ledgers.end(), [](const auto& a, const auto& b) {
    return std::tie(a.start_unix_ns, a.trace_id, a.root_id) < std::tie(b.start_unix_ns, b.trace_id, b.root_id);
  });
  return ledgers;
}

}  // namespace tailspan::store::duckdb
