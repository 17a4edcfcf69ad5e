#include "cli/recorder.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

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

using base::Loss;
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
// What may wait for a slow disk before spans are shed; records of kernel and loops are never shed here, their rings are
// the limit.
constexpr size_t kPendingSpanBytesMax = 1u << 30;

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

template <typename T>
void MoveTail(std::vector<T>* from, std::vector<T>* to) {
  if (to->empty()) {
    *to = std::move(*from);
  } else {
    to->insert(to->end(), std::make_move_iterator(from->begin()), std::make_move_iterator(from->end()));
  }
  from->clear();
}

void MoveBatch(model::RecordBatch* from, model::RecordBatch* to) {
  MoveTail(&from->spans, &to->spans);
  MoveTail(&from->intervals, &to->intervals);
  MoveTail(&from->process_events, &to->process_events);
  MoveTail(&from->processes, &to->processes);
  MoveTail(&from->retransmissions, &to->retransmissions);
  MoveTail(&from->sockets, &to->sockets);
  MoveTail(&from->sockets_ready, &to->sockets_ready);
  MoveTail(&from->block_requests, &to->block_requests);
  MoveTail(&from->cpu_samples, &to->cpu_samples);
  MoveTail(&from->steps, &to->steps);
  MoveTail(&from->sites, &to->sites);
  MoveTail(&from->span_changes, &to->span_changes);
  MoveTail(&from->polls, &to->polls);
  MoveTail(&from->loop_holes, &to->loop_holes);
  MoveTail(&from->gc_pauses, &to->gc_pauses);
  MoveTail(&from->clock_pairs, &to->clock_pairs);
}

}  // namespace

Recorder::Recorder(const RecorderOptions& options) : options_(options) {}

Result<std::unique_ptr<Recorder>> Recorder::Start(const RecorderOptions& options) {
  std::unique_ptr<Recorder> recorder(new Recorder(options));
  auto store = store::duckdb::Create(options.file, {});
  if (!store.ok()) return std::move(store).error();
  recorder->store_ = std::move(*store);
  Status begun = recorder->Begin();
  if (begun.ok()) return recorder;
  // Nothing is recorded: a file would only be in the way of the next try.
  recorder.reset();
  unlink(options.file.c_str());
  unlink((options.file + ".wal").c_str());
  return std::move(begun).error();
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
  pending_.host = info_.host;
  pending_.clock_pairs.push_back(base::SampleClockPair());

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

  if (Status status = store_->PutInfo(info_); !status.ok()) return status;
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
}

Status Recorder::Follow(int32_t pid) {
  std::lock_guard collect(collect_mutex_);
  model::RecordBatch found;
  watch_->Add(pid, &found);
  Status status;
  if (probes_) status = probes_->FollowProcess(pid);
  std::lock_guard lock(mutex_);
  MoveBatch(&found, &pending_);
  return status;
}

void Recorder::TakeSpans(std::vector<model::Span>&& spans) {
  size_t bytes = 0;
  uint64_t complete = 0;
  for (const model::Span& span : spans) {
    bytes += ApproxBytes(span);
    complete += span.complete;  // the others come again
  }
  std::lock_guard lock(mutex_);
  spans_received_ += complete;
  if (pending_span_bytes_ + bytes > kPendingSpanBytesMax) {
    base::LossCounters::Global().Add(Loss::kShedUnderLoad, spans.size());
    return;
  }
  pending_span_bytes_ += bytes;
  MoveTail(&spans, &pending_.spans);
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
  MoveBatch(&batch, &pending_);
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
      MoveBatch(&batch, &pending_);
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
  model::RecordBatch batch;
  batch.host = info_.host;
  {
    std::lock_guard lock(mutex_);
    MoveBatch(&pending_, &batch);
    pending_span_bytes_ = 0;
  }
  Status status = store_->Append(batch);
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
  receiver_->Stop();
  DrainOnce(true);
  if (probes_) probes_->PublishLosses();
  pending_.clock_pairs.push_back(base::SampleClockPair());
  for (model::Capability& line : ReadPythonStatus(options_.status_folder))
    info_.capabilities.push_back(std::move(line));
  info_.end_unix_ns = base::UnixNowNs();
  Status status = WriteOnce(false);
  info_.loss = base::LossCounters::Global().NonZero();
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
