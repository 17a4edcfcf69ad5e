// What the DuckDB store promises beyond the port.
#include "store/duckdb/duckdb_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>

#include "base/clock.h"
#include "store/contract_test.h"
#include "store/duckdb/handles.h"
#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
namespace {

using testing::Difference;
using testing::RandomRows;
using testing::StoreContract;
using testing::StoreKind;

INSTANTIATE_TEST_SUITE_P(Duckdb, StoreContract,
                         ::testing::Values(StoreKind{
                             "duckdb", [](const std::string& path) { return Create(path); },
                             [](const std::string& path) { return Open(path, Access::kReadWrite); }}),
                         [](const auto& kind) { return kind.param.name; });

class DuckdbStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "store_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/r.duckdb";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Store> Make() {
    auto made = Create(path_, options_);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? std::move(*made) : nullptr;
  }
  // The code and the message of opening the file as it is; kInternal and "opened" when that works.
  base::Error OpenError(Access access = Access::kReadOnly) {
    auto opened = Open(path_, access, options_);
    return opened.ok() ? base::Error{base::Code::kInternal, "opened"} : opened.error();
  }
  // Runs SQL on the file with nothing but DuckDB, as another client would.
  void Run(const std::string& sql) {
    duckdb_database database = nullptr;
    ASSERT_EQ(duckdb_open(path_.c_str(), &database), DuckDBSuccess);
    DatabaseHandle owned(database);
    duckdb_connection connection = nullptr;
    ASSERT_EQ(duckdb_connect(database, &connection), DuckDBSuccess);
    ConnectionHandle owned_connection(connection);
    auto done = Execute(connection, sql);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  int64_t Ask(const std::string& sql) {
    duckdb_database database = nullptr;
    EXPECT_EQ(duckdb_open(path_.c_str(), &database), DuckDBSuccess);
    DatabaseHandle owned(database);
    duckdb_connection connection = nullptr;
    EXPECT_EQ(duckdb_connect(database, &connection), DuckDBSuccess);
    ConnectionHandle owned_connection(connection);
    auto answer = QueryInteger(connection, sql);
    EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().message);
    return answer.ok() ? *answer : -1;
  }

  base::LossCounters loss_;
  Options options_{.loss = &loss_};
  std::string folder_, path_;
};

// Row `number` of the rows that the killed writer makes: enough of it to see that it is whole.
model::ThreadInterval NumberedInterval(uint64_t number) {
  RandomRows random(number);
  auto interval = random.Make<model::ThreadInterval>();
  interval.sequence = number;
  return interval;
}

// Writes numbered rows for ever; after each flush tells up to which one.
[[noreturn]] void WriteForEver(const std::string& path, bool create, uint64_t from, std::atomic<uint64_t>* flushed) {
  auto store =
      create ? Create(path, {.log_bytes_max = 1 << 20}) : Open(path, Access::kReadWrite, {.log_bytes_max = 1 << 20});
  if (!store.ok()) _exit(3);
  for (uint64_t number = from;;) {
    model::RecordBatch batch;
    batch.host = {"node", "boot"};
    for (int i = 0; i < 150; ++i) batch.intervals.push_back(NumberedInterval(number++));
    if (!(*store)->Append(batch).ok() || !(*store)->Flush().ok()) _exit(4);
    flushed->store(number);
  }
}

TEST_F(DuckdbStoreTest, KillLosesNothingThatWasFlushed) {
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* flushed = new (shared) std::atomic<uint64_t>(0);
  uint64_t have = 0;
  for (int round = 0; round < 5; ++round) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) WriteForEver(path_, round == 0, have, flushed);
    const int64_t start_ns = base::MonoNowNs();
    while (flushed->load() < have + 150 && base::MonoNowNs() - start_ns < 30'000'000'000) usleep(1'000);
    usleep(static_cast<useconds_t>(20'000 + round * 37'000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << WEXITSTATUS(status);

    auto store = Open(path_, round % 2 ? Access::kReadOnly : Access::kReadWrite, options_);
    ASSERT_TRUE(store.ok()) << store.error().message;
    auto batch = (*store)->ReadBatch({});
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    ASSERT_GE(batch->intervals.size(), flushed->load()) << "round " << round;
    for (uint64_t i = have; i < batch->intervals.size(); ++i) {
      ASSERT_EQ(Difference(batch->intervals[i], NumberedInterval(i)), "") << "row " << i << " round " << round;
    }
    have = batch->intervals.size();
    flushed->store(have);
  }
  munmap(shared, 4096);
}

TEST_F(DuckdbStoreTest, KillLosesNothingOlderThanTwoSecondsWhenFlushedEachSecond) {
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = Create(path_, options_);
    if (!store.ok()) _exit(3);
    for (int64_t flushed_ns = base::MonoNowNs();; usleep(10'000)) {
      model::RecordBatch batch;
      batch.steps.resize(1);
      batch.steps[0].start_mono_ns = base::MonoNowNs();
      if (!(*store)->Append(batch).ok()) _exit(4);
      if (base::MonoNowNs() - flushed_ns < 1'000'000'000) continue;
      if (!(*store)->Flush().ok()) _exit(4);
      flushed_ns = base::MonoNowNs();
    }
  }
  usleep(2'700'000);
  kill(child, SIGKILL);
  const int64_t killed_ns = base::MonoNowNs();
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
  auto store = Open(path_, Access::kReadOnly, options_);
  ASSERT_TRUE(store.ok()) << store.error().message;
  auto batch = (*store)->ReadBatch({});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  ASSERT_FALSE(batch->steps.empty());
  EXPECT_GT(batch->steps.back().start_mono_ns, killed_ns - 2'000'000'000);
}

TEST_F(DuckdbStoreTest, AFullDiskFailsTheWriteAndKeepsWhatIsThere) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to mount a small file system";
  const std::string disk = folder_ + "/disk";
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=12m") != 0) {
    GTEST_SKIP() << "cannot mount a small file system: " << strerror(errno);
  }
  path_ = disk + "/r.duckdb";
  uint64_t kept = 0;
  {
    auto store = Make();
    ASSERT_NE(store, nullptr);
    base::Status status;
    for (uint64_t number = 0; number < 200'000; number += 500) {
      model::RecordBatch batch;
      for (uint64_t i = 0; i < 500; ++i) batch.intervals.push_back(NumberedInterval(number + i));
      status = store->Append(batch);
      if (status.ok()) status = store->Flush();
      if (!status.ok()) break;
      kept = number + 500;
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, base::Code::kResourceExhausted) << status.error().message;
    EXPECT_EQ(loss_.Get(base::Loss::kStoreWriteFailed), 500u);
    auto batch = store->ReadBatch({});
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    EXPECT_EQ(batch->intervals.size(), kept);
    // Usable: answers, no crash, and each row is kept or counted.
    uint64_t sent = kept + 500;
    for (int round = 0; round < 40; ++round, sent += 500) {
      model::RecordBatch more;
      for (uint64_t i = 0; i < 500; ++i) more.intervals.push_back(NumberedInterval(kept + i));
      status = store->Append(more);
      if (status.ok()) status = store->Flush();
      if (status.ok()) kept += 500;
    }
    EXPECT_EQ(loss_.Get(base::Loss::kStoreWriteFailed), sent - kept);
  }
  // Given room again, all of it is there.
  ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=100m"), 0);
  {
    auto store = Open(path_, Access::kReadWrite, options_);
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    if (store.ok()) {
      auto batch = (*store)->ReadBatch({});
      EXPECT_TRUE(batch.ok());
      EXPECT_EQ(batch->intervals.size(), kept);
      EXPECT_EQ(Difference(batch->intervals.back(), NumberedInterval(kept - 1)), "");
    }
  }
  umount(disk.c_str());
}

TEST_F(DuckdbStoreTest, CreateRefusesWhatIsInTheWay) {
  Make();
  auto again = Create(path_);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, base::Code::kInvalidArgument);
  EXPECT_NE(again.error().message.find("exists already"), std::string::npos);

  std::filesystem::remove(path_);
  std::ofstream(path_ + ".wal") << "x";
  again = Create(path_);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, base::Code::kInvalidArgument);

  auto lost = Create(folder_ + "/no/such/folder/r.duckdb");
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, base::Code::kNotFound);
  EXPECT_NE(lost.error().message.find("No such file or directory"), std::string::npos);
}

TEST_F(DuckdbStoreTest, OpenSaysWhatIsWrongWithAFile) {
  EXPECT_EQ(OpenError().code, base::Code::kNotFound);

  std::ofstream(path_) << "this is no database, but it is long enough to be taken for one";
  base::Error error = OpenError();
  EXPECT_EQ(error.code, base::Code::kDataLoss);
  EXPECT_NE(error.message.find("is not a tailspan recording"), std::string::npos);

  std::ofstream(path_, std::ios::trunc).flush();
  EXPECT_EQ(OpenError().code, base::Code::kDataLoss);

  std::filesystem::remove(path_);
  Run("CREATE TABLE t (i INTEGER)");
  error = OpenError();
  EXPECT_EQ(error.code, base::Code::kDataLoss);
  EXPECT_NE(error.message.find("no tailspan recording"), std::string::npos);

  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(OpenError().code, base::Code::kDataLoss);
}

TEST_F(DuckdbStoreTest, AnotherVersionIsNamed) {
  Make();
  Run("UPDATE tailspan_schema SET version = 999");
  base::Error error = OpenError();
  EXPECT_EQ(error.code, base::Code::kDataLoss);
  EXPECT_NE(error.message.find("version 999"), std::string::npos);
  EXPECT_EQ(error.message.find('\n'), std::string::npos);
}

TEST_F(DuckdbStoreTest, ADamagedFileIsAnErrorAndNoCrash) {
  {
    auto store = Make();
    RandomRows random(1);
    ASSERT_DONE(store->Append(testing::RandomBatch(&random, {"node", "boot"}, 3000)));
    ASSERT_DONE(store->Flush());
  }
  const auto size = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, size / 2);
  base::Error error = OpenError();
  if (error.message == "opened") {  // the directory was whole; the rows are not
    auto store = Open(path_, Access::kReadOnly);
    auto batch = (*store)->ReadBatch({});
    ASSERT_FALSE(batch.ok());
    error = batch.error();
  }
  EXPECT_EQ(error.message.find('\n'), std::string::npos);
  EXPECT_TRUE(error.code == base::Code::kDataLoss || error.code == base::Code::kInternal) << error.message;
}

TEST_F(DuckdbStoreTest, AFileThatIsBeingWrittenCannotBeOpened) {
  auto store = Make();
  EXPECT_EQ(OpenError().code, base::Code::kUnavailable);  // in this process
  // From another process: one that is started anew, since a forked one shares this one's memory.
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv("TAILSPAN_STORE_TEST_OPEN", path_.c_str(), 1);
    execl("/proc/self/exe", "store_test", "--gtest_filter=OpenAsAnother.*", static_cast<char*>(nullptr));
    _exit(99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the other process opened it, or crashed";
}

// The other half of the test above; does nothing when run by itself.
TEST(OpenAsAnother, Process) {
  const char* path = getenv("TAILSPAN_STORE_TEST_OPEN");
  if (!path) GTEST_SKIP() << "runs as the child of AFileThatIsBeingWrittenCannotBeOpened";
  for (Access access : {Access::kReadOnly, Access::kReadWrite}) {
    auto opened = Open(path, access);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, base::Code::kUnavailable) << opened.error().message;
    EXPECT_EQ(opened.error().message.find('\n'), std::string::npos) << opened.error().message;
  }
}

TEST_F(DuckdbStoreTest, EachRowNamesItsProcess) {
  {
    auto store = Make();
    model::RecordBatch batch;
    batch.host = {"node", "boot"};
    batch.processes.resize(2);
    batch.processes[0].key = {10, 1'000'000'000};
    batch.processes[1].key = {10, 5'000'000'000};
    batch.intervals.resize(3);
    batch.intervals[0].pid = batch.intervals[1].pid = 10, batch.intervals[2].pid = 11;
    batch.intervals[0].window_start_mono_ns = 2'000'000'000;
    batch.intervals[1].window_start_mono_ns = 6'000'000'000;
    ASSERT_DONE(store->Append(batch));
    ASSERT_DONE(store->Flush());
  }
  EXPECT_EQ(Ask("SELECT sum(process_start_mono_ns) FROM thread_interval"), 6'000'000'000);
  EXPECT_EQ(Ask("SELECT count(*) FROM thread_interval WHERE process_start_mono_ns IS NULL"), 1);
  EXPECT_EQ(Ask("SELECT count(*) FROM thread_interval JOIN host USING (host_id) WHERE host = 'node' AND boot = 'boot'"),
            3);
}

TEST_F(DuckdbStoreTest, BytesThatAreNoTextAreReplacedAndCounted) {
  {
    auto store = Make();
    model::RecordBatch batch;
    batch.process_events.resize(1);
    batch.process_events[0].comm = {'a', '\xff', '\xc3', 'b', '\xc3', '\xa9', '\xe2', '\x82'};
    ASSERT_DONE(store->Append(batch));
    ASSERT_DONE(store->Flush());
  }
  EXPECT_EQ(Ask("SELECT count(*) FROM process_event WHERE comm = 'a?' || '?bé?' || '?'"), 1);
  EXPECT_EQ(loss_.Get(base::Loss::kTextNotUtf8), 1u);
}

TEST_F(DuckdbStoreTest, AnyClientCanAskInSql) {
  RandomRows random(9);
  auto ledger = testing::RandomLedger(&random, 20);
  ledger.pieces[3].cause = model::Cause::kGil;
  for (auto& path : ledger.paths) path.emplace_back("leaf");
  {
    auto store = Make();
    model::RecordBatch batch;
    batch.host = {"node", "boot"};
    batch.spans.resize(2);
    batch.spans[0].trace_id = batch.spans[1].trace_id = {0x0123456789abcdef, 0xfedcba9876543210};
    batch.spans[0].span_id = batch.spans[1].span_id = 0xab;
    batch.spans[0].attributes = {{"k", "old"}};
    batch.spans[1].attributes = {{"k", "new"}, {"k", "again"}, {"other", "1"}};
    batch.intervals.resize(1);
    batch.intervals[0].wait_start_mono_ns = 1'000, batch.intervals[0].wake_mono_ns = 1'700;
    batch.intervals[0].wait_end_mono_ns = 2'000;
    batch.intervals[0].short_ns[static_cast<size_t>(model::WaitClass::kGil)] = 77;
    ASSERT_DONE(store->Append(batch));
    ASSERT_DONE(store->Flush());
    ASSERT_DONE(store->PutLedgers({ledger}));
  }
  EXPECT_EQ(Ask("SELECT count(*) FROM span_newest WHERE trace_id_hex = '0123456789abcdeffedcba9876543210' AND "
                "span_id_hex = '00000000000000ab' AND attributes['k'] IN ('new', 'again')"),
            1);
  EXPECT_EQ(Ask("SELECT count(*) FROM span WHERE trace_id = '0123456789abcdeffedcba9876543210'"), 2);
  EXPECT_EQ(Ask("SELECT sum(piece_ns) FROM ledger"), ledger.duration_ns);
  EXPECT_GE(Ask("SELECT count(*) FROM ledger WHERE cause = 'gil' AND span = 'leaf'"), 1);
  EXPECT_EQ(Ask("SELECT blocked_ns * 1000 + run_queue_ns FROM wait"), 700'300);
  EXPECT_EQ(
      Ask("SELECT sum(w.ns) FROM (SELECT unnest(short_waits) AS w FROM thread_interval) WHERE w.wait_class = 'gil'"),
      77);
  EXPECT_EQ(Ask("SELECT count(*) FROM (SELECT attributes::VARCHAR FROM span)"), 2);
}

}  // namespace
}  // namespace tailspan::store::duckdb
