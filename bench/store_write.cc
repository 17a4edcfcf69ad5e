// What the embedded store costs: rows per CPU second in and out, bytes a row, memory. Rows look like those of a RAG
// service under load. Prints, asserts nothing but that what was read is what was written.
//   store_write FILE [rows of each kernel table] [largest log in MB]
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "base/clock.h"
#include "store/duckdb/duckdb_store.h"

namespace {

using namespace tailspan;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double RssMb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

int64_t FileBytes(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_size : 0;
}

void Must(const base::Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.error().message);
  std::exit(1);
}

template <typename T>
T Must(base::Result<T> result) {
  if (!result.ok()) Must(base::Status(result.error()));
  return std::move(*result);
}

class Load {
 public:
  model::ThreadInterval Interval() {
    model::ThreadInterval row;
    row.pid = 4000, row.tid = 4000 + static_cast<int32_t>(random_() % 12);
    row.sequence = ++count_;
    row.window_start_mono_ns = now_ns_;
    row.on_cpu_ns = static_cast<int64_t>(random_() % 400'000);
    row.kernel_run_ns = row.on_cpu_ns + static_cast<int64_t>(random_() % 300);
    if (random_() % 3 == 0) row.short_ns[1] = static_cast<int64_t>(random_() % 50'000), row.short_count[1] = 2;
    row.trace_id = trace_, row.span_id = span_;
    row.span_since_mono_ns = now_ns_ - 1'000'000;
    row.wait_start_mono_ns = now_ns_ + row.on_cpu_ns;
    row.wake_mono_ns = row.wait_start_mono_ns + static_cast<int64_t>(random_() % 3'000'000);
    row.wait_end_mono_ns = row.wake_mono_ns + static_cast<int64_t>(random_() % 30'000);
    row.syscall = 232, row.syscall_args = {7, random_(), 64};
    if (random_() % 3 == 0) {
      row.wait_class = model::WaitClass::kSocketRecv, row.cause = model::Cause::kNetRecv;
      row.target.kind = model::TargetKind::kSocket, row.target.fd = 14, row.target.inode = 99'000 + random_() % 40;
      row.target.local = {2, {10, 0, 0, 1}, static_cast<uint16_t>(40'000 + random_() % 40)};
      row.target.remote = {2, {10, 0, 0, 2}, 8000};
      row.waker.kind = model::WakerKind::kNetwork;
    } else {
      row.wait_class = model::WaitClass::kFutex, row.cause = model::Cause::kLock;
      row.target.kind = model::TargetKind::kFutex, row.target.address = 0x7f0000001000 + random_() % 64 * 8;
      row.waker = {model::WakerKind::kThread, 4000, 4003, 202, row.target.address, trace_, span_, {"python3"}};
    }
    row.occupants[0] = {4000, 4003, 20'000, 0, {"python3"}};
    Advance(5'000);
    return row;
  }
  model::LoopStep Step() {
    model::LoopStep row;
    row.pid = row.tid = 4000;
    row.step_id = ++count_, row.waker_step_id = random_() % 2 ? row.step_id - 1 : 0;
    row.task = 0x7f1000000000 + random_() % 30 * 64, row.site = static_cast<uint16_t>(random_() % 60);
    row.span_id = span_;
    row.ready_mono_ns = now_ns_, row.start_mono_ns = now_ns_ + static_cast<int64_t>(random_() % 200'000);
    row.end_mono_ns = row.start_mono_ns + static_cast<int64_t>(random_() % 300'000);
    Advance(5'000);
    return row;
  }
  model::Span Span() {
    model::Span row;
    row.trace_id = trace_, row.span_id = random_(), row.parent_id = span_;
    row.uuid = {random_(), row.span_id};
    row.name = "RunnableSequence", row.service = "rag", row.source = "langsmith";
    row.start_unix_ns = 1'700'000'000'000'000'000 + now_ns_;
    row.end_unix_ns = row.start_unix_ns + static_cast<int64_t>(random_() % 80'000'000);
    row.pid = 4000, row.input_tokens = static_cast<int64_t>(random_() % 900), row.model = "all-MiniLM-L6-v2";
    row.attributes = {{"gen_ai.operation.name", "retrieval"},
                      {"langchain.run_type", "retriever"},
                      {"http.route", "/ask"},
                      {"input.length", std::to_string(random_() % 5000)},
                      {"input.sha256", fmt::format("{:016x}", random_())},
                      {"output.length", std::to_string(random_() % 5000)},
                      {"langsmith.thread", "worker-2"},
                      {"db.collection.name", "documents"}};
    Advance(50'000);
    return row;
  }
  model::TraceLedger Ledger(size_t pieces) {
    model::TraceLedger ledger;
    ledger.trace_id = {random_(), random_()}, ledger.root_id = random_(), ledger.operation = "POST /ask";
    ledger.start_unix_ns = 1'700'000'000'000'000'000 + now_ns_;
    ledger.paths = {{"POST /ask"}, {"POST /ask", "RunnableSequence"}, {"POST /ask", "RunnableSequence", "retrieve"}};
    for (size_t i = 0; i < pieces; ++i) {
      model::LedgerPiece piece;
      piece.start_ns = ledger.duration_ns, piece.end_ns = ledger.duration_ns += 1 + random_() % 900'000;
      piece.span_id = random_(), piece.path = static_cast<uint32_t>(random_() % 3);
      piece.cause = static_cast<model::Cause>(random_() % 20);
      piece.blame = {model::BlameKind::kSpan,
                     "tokenize",
                     "thread worker-2, other requests of POST /ask",
                     "gil release timeline",
                     0.97,
                     {random_(), random_()},
                     random_()};
      piece.join = model::Join::kThreadContext;
      ledger.pieces.push_back(std::move(piece));
    }
    Advance(5'000'000);
    return ledger;
  }

 private:
  void Advance(int64_t ns) {
    now_ns_ += ns;
    if (random_() % 30 == 0) trace_ = {random_(), random_()}, span_ = random_();
  }
  std::mt19937_64 random_{1};
  int64_t now_ns_ = 5'000'000'000'000;
  uint64_t count_ = 0;
  model::TraceId trace_{1, 2};
  model::SpanId span_ = 3;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: store_write FILE [rows]\n");
    return 2;
  }
  const std::string path = argv[1];
  store::duckdb::Options options;
  if (argc > 3) options.log_bytes_max = std::strtoul(argv[3], nullptr, 10) << 20;
  const size_t rows = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1'000'000;
  constexpr size_t kBatchRows = 8'192;
  Load load;
  auto store = Must(store::duckdb::Create(path, options));
  size_t written = 0;
  double cpu_s = 0;
  int64_t wall_ns = 0;
  for (size_t at = 0; at < rows; at += kBatchRows) {
    model::RecordBatch batch;
    batch.host = {"node-1", "boot"};
    for (size_t i = 0; i < kBatchRows; ++i) {
      batch.intervals.push_back(load.Interval());
      batch.steps.push_back(load.Step());
      if (i % 10 == 0) batch.spans.push_back(load.Span());
    }
    if (at == 0) batch.clock_pairs.push_back({0, 1'700'000'000'000'000'000, 50});
    written += batch.intervals.size() + batch.steps.size() + batch.spans.size();
    double before_s = CpuSeconds();
    int64_t before_ns = base::MonoNowNs();
    Must(store->Append(batch));
    Must(store->Flush());
    cpu_s += CpuSeconds() - before_s, wall_ns += base::MonoNowNs() - before_ns;
  }
  fmt::print("wrote {} rows: {:.0f} rows/CPU-s, {:.2f} s CPU, {:.2f} s, RSS {:.0f} MB\n", written,
             static_cast<double>(written) / cpu_s, cpu_s, static_cast<double>(wall_ns) / 1e9, RssMb());
  int64_t log_bytes = FileBytes(path + ".wal");
  double before_s = CpuSeconds();
  store.reset();
  fmt::print("closed: {:.2f} s CPU for a log of {} MB; {:.1f} bytes a row\n", CpuSeconds() - before_s, log_bytes >> 20,
             static_cast<double>(FileBytes(path)) / static_cast<double>(written));

  before_s = CpuSeconds();
  store = Must(store::duckdb::Open(path, store::duckdb::Access::kReadWrite));
  fmt::print("opened: {:.2f} s CPU\n", CpuSeconds() - before_s);
  before_s = CpuSeconds();
  {
    auto batch = Must(store->ReadBatch({}));
    fmt::print("read {} intervals, {} steps, {} spans: {:.2f} s CPU, RSS {:.0f} MB\n", batch.intervals.size(),
               batch.steps.size(), batch.spans.size(), CpuSeconds() - before_s, RssMb());
    if (batch.intervals.size() + batch.steps.size() + batch.spans.size() != written) return 1;
  }
  std::vector<model::TraceLedger> ledgers;
  for (int i = 0; i < 4000; ++i) ledgers.push_back(load.Ledger(100));
  for (const char* what : {"put", "replaced"}) {
    before_s = CpuSeconds();
    Must(store->PutLedgers(ledgers));
    fmt::print("{} 4000 ledgers of 100 pieces: {:.2f} s CPU\n", what, CpuSeconds() - before_s);
  }
  for (const char* operation : {"", "POST /ask"}) {
    before_s = CpuSeconds();
    auto read = Must(store->ReadLedgers(operation, {}));
    fmt::print("read {} ledgers ('{}'): {:.2f} s CPU\n", read.size(), operation, CpuSeconds() - before_s);
    if (read.size() != ledgers.size()) return 1;
  }
  before_s = CpuSeconds();
  store.reset();
  fmt::print("closed: {:.2f} s CPU, {} MB\n", CpuSeconds() - before_s, FileBytes(path) >> 20);
  return 0;
}
