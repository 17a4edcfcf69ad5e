// The recorder with a store that does as the test says.
#include "cli/recorder.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace tailspan::cli {
namespace {

// What the test and the store, which the recorder owns, have in common.
struct Disk {
  std::mutex mutex;
  std::condition_variable wake;
  bool hangs = false;
  size_t spans = 0;
  size_t largest_bytes = 0;  // of one Append's spans
  model::RecordingInfo info;

  void Hang(bool on) {
    std::lock_guard lock(mutex);
    hangs = on;
    wake.notify_all();
  }
};

class DiskStore : public store::Store {
 public:
  explicit DiskStore(Disk* disk) : disk_(disk) {}
  base::Status Append(const model::RecordBatch& batch) override {
    std::unique_lock lock(disk_->mutex);
    size_t bytes = 0;
    for (const model::Span& span : batch.spans) bytes += ApproxBytes(span);
    disk_->largest_bytes = std::max(disk_->largest_bytes, bytes);
    disk_->wake.wait(lock, [this] { return !disk_->hangs; });
    disk_->spans += batch.spans.size();
    return {};
  }
  base::Status PutInfo(const model::RecordingInfo& info) override {
    std::lock_guard lock(disk_->mutex);
    disk_->info = info;
    return {};
  }
  base::Status Flush() override { return {}; }
  base::Result<model::RecordingInfo> ReadInfo() override { return disk_->info; }
  base::Result<model::RecordBatch> ReadBatch(const store::TimeWindow&) override { return model::RecordBatch(); }
  base::Status PutLedgers(const std::vector<model::TraceLedger>&) override { return {}; }
  base::Result<std::vector<model::TraceLedger>> ReadLedgers(const std::string&, const store::TimeWindow&) override {
    return std::vector<model::TraceLedger>();
  }

 private:
  Disk* disk_;
};

constexpr size_t kSpansABody = 100;

std::string Body(size_t number) {
  std::string spans;
  for (size_t i = 0; i < kSpansABody; ++i) {
    spans += fmt::format(
        R"({}{{"traceId":"{:032x}","spanId":"{:016x}","name":"op","startTimeUnixNano":"1790000000000000000",)"
        R"("endTimeUnixNano":"1790000000001000000","attributes":[{{"key":"k","value":{{"stringValue":"{:1000}"}}}}]}})",
        i ? "," : "", number * kSpansABody + i + 1, i + 1, "x");
  }
  return R"({"resourceSpans":[{"scopeSpans":[{"spans":[)" + spans + "]}]}]}";
}

// True when the recorder took it.
bool Post(uint16_t port, const std::string& body) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}};
  bool taken = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  const std::string request = fmt::format(
      "POST /v1/traces HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
  for (size_t at = 0; taken && at < request.size();) {
    const ssize_t n = send(fd, request.data() + at, request.size() - at, MSG_NOSIGNAL);
    taken = n > 0;
    at += taken ? static_cast<size_t>(n) : 0;
  }
  char answer[16] = {};
  taken = taken && recv(fd, answer, sizeof answer - 1, MSG_WAITALL) > 0 && std::string(answer).find(" 200 ") == 8;
  close(fd);
  return taken;
}

TEST(Recorder, AStoreThatHangsCostsRecordsAndNoMemory) {
  constexpr size_t kBytesMax = 1u << 20, kBodies = 100;
  Disk disk;
  RecorderOptions options;
  options.use_probes = false;
  options.pending_bytes_max = kBytesMax;
  options.make_store = [&disk](const std::string&) -> base::Result<std::unique_ptr<store::Store>> {
    return std::unique_ptr<store::Store>(std::make_unique<DiskStore>(&disk));
  };
  const uint64_t shed_before = base::LossCounters::Global().Get(base::Loss::kShedUnderLoad);
  auto recorder = Recorder::Start(options);
  ASSERT_TRUE(recorder) << recorder.error().message;
  disk.Hang(true);
  for (size_t i = 0; i < kBodies; ++i) ASSERT_TRUE(Post((*recorder)->port(), Body(i)));
  disk.Hang(false);
  ASSERT_TRUE((*recorder)->Finish());
  const uint64_t shed = base::LossCounters::Global().Get(base::Loss::kShedUnderLoad) - shed_before;
  EXPECT_EQ((*recorder)->spans_received(), kBodies * kSpansABody);
  EXPECT_EQ(disk.spans + shed, kBodies * kSpansABody) << "each span is stored or counted";
  EXPECT_GT(disk.spans, 0u);
  EXPECT_GT(shed, kBodies * kSpansABody / 2) << "13 MB were sent";
  EXPECT_LE(disk.largest_bytes, kBytesMax + 2 * kSpansABody * 1100);
  EXPECT_EQ(disk.info.loss.at("shed_under_load"), base::LossCounters::Global().Get(base::Loss::kShedUnderLoad));
}

}  // namespace
}  // namespace tailspan::cli
