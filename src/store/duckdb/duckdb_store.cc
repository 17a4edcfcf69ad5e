#include "store/duckdb/duckdb_store.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "store/duckdb/database.h"
#include "store/duckdb/ledger_io.h"
#include "store/duckdb/reader.h"
#include "store/duckdb/tables.h"
#include "store/duckdb/writer.h"

namespace tailspan::store::duckdb {
namespace {

constexpr uint64_t kPendingRowsMax = 32'768;  // then Append flushes by itself: about 25 MB
constexpr uint16_t kHostId = 1;               // one file, one host

class DuckdbStore : public Store {
 public:
  DuckdbStore(std::unique_ptr<Database> database, const Options& options)
      : database_(std::move(database)), loss_(options.loss) {
    context_.host_id = kHostId;
    context_.process_starts = &process_starts_;
  }
  ~DuckdbStore() override { (void)Flush().ok(); }

  base::Status Load();  // what an existing file holds and writing needs

  base::Status Append(const model::RecordBatch& batch) override;
  base::Status PutInfo(const model::RecordingInfo& info) override;
  base::Status Flush() override;
  base::Result<model::RecordingInfo> ReadInfo() override;
  base::Result<model::RecordBatch> ReadBatch(const TimeWindow& window) override;
  base::Status PutLedgers(const std::vector<model::TraceLedger>& ledgers) override;
  base::Result<std::vector<model::TraceLedger>> ReadLedgers(const std::string& operation,
                                                            const TimeWindow& window) override;

 private:
  // Runs `body`, then gives everything pending to the file, all of it or nothing.
  base::Status Transaction(const std::function<base::Status()>& body);
  base::Status Recover(base::Status failed, uint64_t rows);
  base::Status TakeHost(const model::HostKey& host);
  base::Status WriteInfo(const model::RecordingInfo& info);
  uint64_t PendingRows() const;
  static uint64_t RowsOf(const model::RecordBatch& batch);
  duckdb_connection connection() const { return database_->connection(); }

  template <typename Row>
  base::Status Write(const Table<Row>& table, const Row* rows, size_t n) {
    if (n == 0) return {};
    std::unique_ptr<ChunkWriter>& writer = writers_[table.name()];
    if (!writer) writer = std::make_unique<TableWriter<Row>>(connection(), table);
    return static_cast<TableWriter<Row>*>(writer.get())->Append(rows, n, context_);
  }

  std::unique_ptr<Database> database_;
  base::LossCounters* loss_;
  ProcessStarts process_starts_;
  WriteContext context_;
  std::map<std::string, std::unique_ptr<ChunkWriter>> writers_;
  model::HostKey host_;
  bool has_host_ = false;
  bool is_broken_ = false;  // DuckDB's state is gone; open again before the next use
};

base::Status DuckdbStore::Load() {
  std::vector<HostRow> hosts;
  base::Status status = ReadRows(connection(), HostTable(), "", &hosts);
  if (!status.ok()) return status;
  if (!hosts.empty()) host_ = hosts.front().key, has_host_ = true;
  std::vector<model::ProcessInfo> processes;
  status = ReadRows(connection(), ProcessTable(), "", &processes);
  if (!status.ok()) return status;
  for (const auto& process : processes) process_starts_.Add(process.key.pid, process.key.start_mono_ns);
  return {};
}

uint64_t DuckdbStore::PendingRows() const {
  uint64_t rows = 0;
  for (const auto& [name, writer] : writers_) rows += writer->pending_rows();
  return rows;
}

base::Status DuckdbStore::Transaction(const std::function<base::Status()>& body) {
  if (is_broken_) {
    base::Status status = database_->Reopen();
    if (!status.ok()) return status;
    is_broken_ = false;
  }
  base::Status status = Execute(connection(), "BEGIN");
  if (status.ok()) status = body();
  uint64_t rows = PendingRows();
  for (auto& [name, writer] : writers_) {
    if (status.ok()) status = writer->Flush();
  }
  if (status.ok()) status = Execute(connection(), "COMMIT");
  loss_->Add(base::Loss::kTextNotUtf8, context_.cleaner.TakeCount());
  return status.ok() ? status : Recover(std::move(status), rows);
}

base::Status DuckdbStore::Recover(base::Status failed, uint64_t rows) {
  for (auto& [name, writer] : writers_) writer->Abandon();
  writers_.clear();
  (void)Execute(connection(), "ROLLBACK").ok();
  // After an error in the middle of a write DuckDB may refuse everything until the file is opened again.
  if (!Execute(connection(), "SELECT 1").ok()) is_broken_ = !database_->Reopen().ok();
  if (rows > 0) loss_->Add(base::Loss::kStoreWriteFailed, rows);
  return std::move(failed).error().WithContext(fmt::format("{} rows could not be written", rows));
}

base::Status DuckdbStore::TakeHost(const model::HostKey& host) {
  if (host == model::HostKey{} || (has_host_ && host == host_)) return {};
  if (has_host_) {
    return base::Error{base::Code::kInvalidArgument,
                       fmt::format("a recording holds one host: this one is of {}, not {}", host_.host, host.host)};
  }
  host_ = host, has_host_ = true;
  HostRow row{kHostId, host};
  return Write(HostTable(), &row, 1);
}

uint64_t DuckdbStore::RowsOf(const model::RecordBatch& batch) {
  uint64_t rows = 0;
  ForEachBatchTable(batch, [&rows](const auto&, const auto& table_rows) { rows += table_rows.size(); });
  return rows;
}

base::Status DuckdbStore::Append(const model::RecordBatch& batch) {
  if (is_broken_) {
    base::Status opened = Transaction([] { return base::Status(); });
    if (!opened.ok()) {
      loss_->Add(base::Loss::kStoreWriteFailed, RowsOf(batch));
      return opened;
    }
  }
  const uint64_t lost_rows = PendingRows() + RowsOf(batch);
  base::Status status = TakeHost(batch.host);
  if (!status.ok()) return status;
  for (const auto& process : batch.processes) process_starts_.Add(process.key.pid, process.key.start_mono_ns);
  for (const auto& event : batch.process_events) {
    if (event.kind == model::ProcessEventKind::kFork) process_starts_.Add(event.pid, event.at_mono_ns);
  }
  ForEachBatchTable(batch, [&](const auto& table, const auto& rows) {
    if (status.ok()) status = Write(table, rows.data(), rows.size());
  });
  if (!status.ok()) return Recover(std::move(status), lost_rows);
  return PendingRows() >= kPendingRowsMax ? Flush() : status;
}

base::Status DuckdbStore::Flush() {
  if (PendingRows() == 0) return {};
  return Transaction([] { return base::Status(); });
}

base::Status DuckdbStore::PutInfo(const model::RecordingInfo& info) {
  return Transaction([&] { return WriteInfo(info); });
}

base::Status DuckdbStore::WriteInfo(const model::RecordingInfo& info) {
  base::Status status = TakeHost(info.host);
  if (status.ok()) status = Execute(connection(), "DELETE FROM recording; DELETE FROM capability; DELETE FROM loss");
  if (status.ok()) status = Write(RecordingTable(), &info, 1);
  if (status.ok()) status = Write(CapabilityTable(), info.capabilities.data(), info.capabilities.size());
  std::vector<LossRow> loss;
  for (const auto& [name, count] : info.loss) loss.push_back({name, count});
  if (status.ok()) status = Write(LossTable(), loss.data(), loss.size());
  return status;
}

base::Result<model::RecordingInfo> DuckdbStore::ReadInfo() {
  base::Status status = Flush();
  std::vector<model::RecordingInfo> infos;
  std::vector<LossRow> loss;
  if (status.ok()) status = ReadRows(connection(), RecordingTable(), "", &infos);
  if (!status.ok()) return std::move(status).error();
  if (infos.empty()) return base::Error{base::Code::kNotFound, "the recording says nothing about itself"};
  model::RecordingInfo info = std::move(infos.front());
  info.schema_version = kSchemaVersion;
  info.host = host_;
  status = ReadRows(connection(), CapabilityTable(), "", &info.capabilities);
  if (status.ok()) status = ReadRows(connection(), LossTable(), "", &loss);
  if (!status.ok()) return std::move(status).error();
  for (const LossRow& row : loss) info.loss.emplace(row.name, row.count);
  return info;
}

base::Result<model::RecordBatch> DuckdbStore::ReadBatch(const TimeWindow& window) {
  base::Status status = Flush();
  if (!status.ok()) return std::move(status).error();
  model::RecordBatch batch;
  batch.host = host_;
  status = ReadRows(connection(), ClockPairTable(), "", &batch.clock_pairs);
  if (!status.ok()) return std::move(status).error();
  const WindowSql where(window, base::ClockMap(batch.clock_pairs));
  ForEachBatchTable(batch, [&](const auto& table, auto& rows) {
    if (status.ok() && table.name() != ClockPairTable().name()) {
      status = ReadRows(connection(), table, where.For(table.window(), table.name()), &rows);
    }
  });
  if (!status.ok()) return std::move(status).error();
  KeepNewest(&batch);
  return batch;
}

base::Status DuckdbStore::PutLedgers(const std::vector<model::TraceLedger>& ledgers) {
  if (ledgers.empty()) return {};
  return Transaction([&]() -> base::Status {
    auto next_id = RemoveLedgers(connection(), ledgers);
    if (!next_id.ok()) return std::move(next_id).error();
    for (size_t i : LastOfEach(ledgers)) {
      const model::TraceLedger& ledger = ledgers[i];
      context_.ledger_id = (*next_id)++, context_.trace_id = ledger.trace_id, context_.root_id = ledger.root_id;
      base::Status status = Write(TraceTable(), &ledger, 1);
      for (uint32_t path = 0; path < ledger.paths.size() && status.ok(); ++path) {
        PathRow row{path, ledger.paths[path]};
        status = Write(TracePathTable(), &row, 1);
      }
      if (status.ok()) status = Write(TracePieceTable(), ledger.pieces.data(), ledger.pieces.size());
      if (!status.ok()) return status;
    }
    return {};
  });
}

base::Result<std::vector<model::TraceLedger>> DuckdbStore::ReadLedgers(const std::string& operation,
                                                                       const TimeWindow& window) {
  base::Status status = Flush();
  if (!status.ok()) return std::move(status).error();
  return duckdb::ReadLedgers(connection(), operation, window);
}

base::Result<std::unique_ptr<Store>> MakeStore(base::Result<std::unique_ptr<Database>> database,
                                               const Options& options) {
  if (!database.ok()) return std::move(database).error();
  auto store = std::make_unique<DuckdbStore>(std::move(*database), options);
  base::Status status = store->Load();
  if (!status.ok()) return std::move(status).error();
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace

base::Result<std::unique_ptr<Store>> Create(const std::string& path, const Options& options) {
  return MakeStore(Database::Create(path, options), options);
}

base::Result<std::unique_ptr<Store>> Open(const std::string& path, Access access, const Options& options) {
  return MakeStore(Database::Open(path, access, options), options);
}

}  // namespace tailspan::store::duckdb
