#include "cli/recorder.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/background_thread.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/process_watch.h"
#include "cli/python_status.h"
#include "cli/version.h"
#include "store/duckdb/duckdb_store.h"

namespace tailspan::cli {
namespace {

using base::Result;
using base::Status;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kCollectEvery{20};
constexpr milliseconds kWriteEvery{250};
constexpr int64_t kFlushEveryNs = 1'250'000'000;  // what SIGKILL may cost: this, a round and the time of a write
constexpr int kCollectsPerSlowScan = 50;
// The command has precedence: what waits to be written waits in memory, but no longer than this.
constexpr milliseconds kWriteRoundMax{400};
constexpr int kWriterNice = 5;  // while it is an ordinary thread

std::string FirstLine(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

model::HostKey ThisHost() {
  utsname name{};
  uname(&name);
  return {name.nodename, FirstLine("/proc/sys/kernel/random/boot_id")};
}

size_t PendingBytesMax(size_t wanted) {
  if (wanted) return wanted;
  constexpr size_t kMost = size_t{1} << 30, kLeast = size_t{64} << 20;
  const auto memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::clamp(memory / 8, kLeast, kMost);
}

}  // namespace

Recorder::Recorder(const RecorderOptions& options)
    : options_(options), pending_(PendingBytesMax(options.pending_bytes_max), &base::LossCounters::Global()) {}

Result<std::unique_ptr<Recorder>> Recorder::Start(const RecorderOptions& options) {
  std::unique_ptr<Recorder> recorder(new Recorder(options));
  if (options.files_as_caller) recorder->file_user_ = SudoCaller();
  if (Status opened = recorder->OpenStore(); !opened.ok()) return std::move(opened).error();
  const std::optional<Caller> file_user = recorder->file_user_;
  Status begun = recorder->Begin();
  if (begun.ok()) return recorder;
  // Nothing is recorded: a file would only be in the way of the next try.
  recorder.reset();
  FilesAs files(file_user);
  unlink(options.file.c_str());
  unlink((options.file + ".wal").c_str());
  return std::move(begun).error();
}

Status Recorder::OpenStore() {
  auto make = [this] {
    FilesAs files(file_user_);
    return options_.make_store ? options_.make_store(options_.file) : store::duckdb::Create(options_.file, {});
  };
  auto store = make();
  if (!store.ok() && store.error().code == base::Code::kPermission && file_user_) {
    // Where the caller may not write, neither may the command.
    file_user_.reset();
    store = make();
  }
  if (!store.ok()) return std::move(store).error();
  store_ = std::move(*store);
  return {};
}

Status Recorder::Begin() {
  info_.tailspan_version = kVersion;
  info_.host = ThisHost();
  info_.name = options_.name;
  info_.command = options_.command;
  info_.start_unix_ns = base::UnixNowNs();
  utsname name{};
  uname(&name);
  info_.manifest["kernel"] = std::string(name.sysname) + " " + name.release + " " + name.machine;
  info_.manifest["cpus"] = std::to_string(sysconf(_SC_NPROCESSORS_ONLN));
  info_.manifest["threshold_us"] = std::to_string(options_.probes.threshold_ns / 1000);
  AddClockPair();

  if (options_.use_probes) {
    auto probes = probe::KernelProbes::Open(options_.probes);
    if (probes.ok()) {
      probes_ = std::move(*probes);
      info_.capabilities = probes_->capabilities();
    } else {
      base::LogWarning("recording spans only: {}", probes.error().message);
      info_.capabilities = probe::KernelProbes::Probe(options_.probes);
    }
  } else {
    info_.capabilities.push_back({"kernel_probes", false, "switched off by --no-probes", "leave the option out"});
  }
  watch_ = std::make_unique<ProcessWatch>(probes_.get(), &base::LossCounters::Global(), options_.ring_drop_per_mille);

  collect::ReceiverOptions receive;
  receive.port = options_.port;
  receive.keep_content = options_.keep_content;
  receive.version = kVersion;
  auto receiver =
      collect::Receiver::Start(receive, [this](std::vector<model::Span>&& spans) { TakeSpans(std::move(spans)); });
  if (!receiver.ok()) return std::move(receiver).error();
  receiver_ = std::move(*receiver);

  {
    FilesAs files(file_user_);
    if (Status status = store_->PutInfo(info_); !status.ok()) return status;
  }
  if (Status status = WriteOnce(true); !status.ok()) return status;
  collector_ = std::thread([this] { CollectLoop(); });
  writer_ = std::thread([this] { WriteLoop(); });
  return {};
}

Recorder::~Recorder() {
  if (collector_.joinable()) {
    Status ignored = Finish();
    if (!ignored.ok()) base::LogError("{}", ignored.error().message);
  }
  receiver_.reset();  // before what its sink uses
  FilesAs files(file_user_);
  store_.reset();
}

Status Recorder::Follow(int32_t pid) {
  std::lock_guard collect(collect_mutex_);
  model::RecordBatch found;
  watch_->Add(pid, &found);
  Status status;
  if (probes_) status = probes_->FollowProcess(pid);
  std::lock_guard lock(mutex_);
  pending_.Add(std::move(found));
  return status;
}

void Recorder::TakeSpans(std::vector<model::Span>&& spans) {
  uint64_t complete = 0;
  for (const model::Span& span : spans) complete += span.complete;  // the others come again
  model::RecordBatch batch;
  batch.spans = std::move(spans);
  std::lock_guard lock(mutex_);
  spans_received_ += complete;
  pending_.Add(std::move(batch));
}

void Recorder::AddClockPair() {
  model::RecordBatch batch;
  batch.clock_pairs.push_back(base::SampleClockPair());
  std::lock_guard lock(mutex_);
  pending_.Add(std::move(batch));
}

void Recorder::DrainOnce(bool last) {
  model::RecordBatch batch;
  {
    std::lock_guard collect(collect_mutex_);
    if (probes_) {
      probes_->Drain(&batch);
      if (last) probes_->DrainOpenWindows(&batch);
    }
    watch_->Update(&batch);
  }
  std::lock_guard lock(mutex_);
  pending_.Add(std::move(batch));
}

void Recorder::CollectLoop() {
  for (int round = 0;; ++round) {
    DrainOnce(false);
    if (round % kCollectsPerSlowScan == 0) {
      model::RecordBatch batch;
      {
        std::lock_guard collect(collect_mutex_);
        if (probes_) probes_->PublishLosses();
        watch_->UpdateSlow(&batch);
      }
      batch.clock_pairs.push_back(base::SampleClockPair());
      std::lock_guard lock(mutex_);
      pending_.Add(std::move(batch));
    }
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, kCollectEvery, [this] { return stopping_; })) return;
  }
}

void Recorder::WriteLoop() {
  base::BackgroundThread background(kWriteRoundMax);
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kWriterNice);
  int64_t flushed_mono_ns = base::MonoNowNs();
  while (true) {
    background.CameRound();
    {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, kWriteEvery, [this] { return stopping_; })) return;
    }
    // By the clock: writing may take long itself.
    int64_t now_mono_ns = base::MonoNowNs();
    bool flush = now_mono_ns - flushed_mono_ns + nanoseconds(kWriteEvery).count() > kFlushEveryNs;
    if (flush) flushed_mono_ns = now_mono_ns;
    Status status = WriteOnce(flush);
    if (status.ok()) continue;
    std::lock_guard lock(mutex_);
    if (write_status_.ok()) {
      base::LogError("{}; the command goes on, the recording is cut short", status.error().message);
      write_status_ = status;
    }
  }
}

Status Recorder::WriteOnce(bool flush) {
  FilesAs files(file_user_);
  Status status;
  {
    model::RecordBatch batch;
    {
      std::lock_guard lock(mutex_);
      batch = pending_.Take();
    }
    batch.host = info_.host;
    status = store_->Append(batch);
  }
  {
    std::lock_guard lock(mutex_);
    pending_.Written();
  }
  if (!status.ok() || !flush) return status;
  auto loss = base::LossCounters::Global().NonZero();
  if (loss == info_.loss) return store_->Flush();
  info_.loss = std::move(loss);
  return store_->PutInfo(info_);  // flushes too
}

Status Recorder::write_status() const {
  std::lock_guard lock(mutex_);
  return write_status_;
}

Status Recorder::Finish() {
  if (finished_) return write_status();
  finished_ = true;
  receiver_->Drain(milliseconds(1000));
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  collector_.join();
  writer_.join();
  Status status = WriteOnce(false);  // makes room for what comes last
  receiver_->Stop();
  DrainOnce(true);
  if (probes_) probes_->PublishLosses();
  AddClockPair();
  for (model::Capability& line : ReadPythonStatus(options_.status_folder))
    info_.capabilities.push_back(std::move(line));
  info_.end_unix_ns = base::UnixNowNs();
  Status last = WriteOnce(false);
  if (status.ok()) status = last;
  info_.loss = base::LossCounters::Global().NonZero();
  FilesAs files(file_user_);
  Status told = store_->PutInfo(info_);
  if (!told.ok()) {
    // What could not be written is given up. That it is missing may still find room.
    info_.loss = base::LossCounters::Global().NonZero();
    (void)store_->PutInfo(info_).ok();
  }
  if (status.ok()) status = told;
  store_.reset();
  probes_.reset();
  return write_status_.ok() ? status : write_status_;
}

}  // namespace tailspan::cli
