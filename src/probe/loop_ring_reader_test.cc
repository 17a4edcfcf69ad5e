#include "probe/loop_ring_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "base/clock.h"
#include "context/thread_state.h"

namespace tailspan::probe {
namespace {

using base::Loss;

const uint8_t kTrace[16] = {1};
const uint8_t kSpan[8] = {0, 0, 0, 0, 0, 0, 1, 2};  // 0x0102 in wire order

base::Result<LoopRingReader> OpenOwn(base::LossCounters* loss, pid_t pid = getpid()) {
  auto context = ReadProcessContext(pid);
  if (!context.ok()) return context.error();
  return LoopRingReader::Open(pid, *context, loss);
}

// A ring of the test's own, as a hostile program could make it.
struct FakeRing {
  int fd = -1;
  uint8_t* bytes = nullptr;

  explicit FakeRing(int seals = F_SEAL_SHRINK | F_SEAL_GROW, off_t size = TAILSPAN_RING_BYTES) {
    fd = memfd_create(TAILSPAN_RING_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, size), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    bytes = static_cast<uint8_t*>(mmap(nullptr, TAILSPAN_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    auto* header = Header();
    std::memcpy(header->magic, TAILSPAN_RING_MAGIC, 8);
    header->version = TAILSPAN_RING_VERSION;
    header->record_bytes = TAILSPAN_RING_RECORD_BYTES;
    header->loop_slots = TAILSPAN_LOOP_SLOTS;
    header->loop_records = TAILSPAN_LOOP_RECORDS;
    header->plain_slots = TAILSPAN_PLAIN_SLOTS;
    header->plain_records = TAILSPAN_PLAIN_RECORDS;
    header->sites = TAILSPAN_SITES;
    header->site_bytes = TAILSPAN_SITE_BYTES;
  }
  ~FakeRing() {
    munmap(bytes, TAILSPAN_RING_BYTES);
    close(fd);
  }
  TailspanRingHeader* Header() { return reinterpret_cast<TailspanRingHeader*>(bytes); }
  TailspanRingSlot* Slot(uint32_t i) { return reinterpret_cast<TailspanRingSlot*>(bytes + TAILSPAN_RING_SLOTS_AT) + i; }
  TailspanRingRecord* Record(uint32_t slot, uint64_t i) {
    return reinterpret_cast<TailspanRingRecord*>(bytes + tailspan_slot_records_at(slot)) +
           i % tailspan_slot_capacity(slot);
  }
  void WriteStep(uint32_t slot, uint64_t step) {
    uint64_t i = Slot(slot)->head;
    TailspanRingRecord record = {};
    record.seq = 2 * i + 2;
    record.ready_ns = 100;
    record.start_ns = 200 + i;
    record.end_ns = 300 + i;
    record.step = step;
    record.type = TAILSPAN_STEP;
    record.kind = TAILSPAN_SOON;
    record.tid = 77;
    *Record(slot, i) = record;
    Slot(slot)->head = i + 1;
  }
  void WriteSocket(uint32_t slot, TailspanRingSocket socket) {
    uint64_t i = Slot(slot)->head;
    socket.seq = 2 * i + 2;
    socket.type = TAILSPAN_SOCKET;
    socket.tid = 77;
    std::memcpy(static_cast<void*>(Record(slot, i)), &socket, sizeof socket);
    Slot(slot)->head = i + 1;
  }
  base::Result<LoopRingReader> Open(base::LossCounters* loss) {
    return LoopRingReader::FromDescriptor(5, dup(fd), loss);
  }
};

TEST(LoopRingReaderTest, ReadsOwnSpanChanges) {
  base::LossCounters loss;
  auto reader = OpenOwn(&loss);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  model::RecordBatch batch;
  ASSERT_TRUE(reader->Drain(&batch));
  batch = {};
  int32_t tid = 0;
  std::thread([&] {
    tid = static_cast<int32_t>(tailspan_state()->tid);
    tailspan_context_set(kTrace, kSpan, nullptr);
    tailspan_context_clear();
  }).join();
  ASSERT_TRUE(reader->Drain(&batch));
  ASSERT_EQ(batch.span_changes.size(), 2u);
  const auto &on = batch.span_changes[0], &off = batch.span_changes[1];
  EXPECT_EQ(on.pid, getpid());
  EXPECT_EQ(on.tid, tid);
  EXPECT_EQ(on.span_id, 0x0102u);
  EXPECT_EQ(on.previous_id, 0u);
  EXPECT_EQ(on.step_id, 0u);
  EXPECT_EQ(on.kind, model::SpanChangeKind::kEnter);
  EXPECT_EQ(off.span_id, 0u);
  EXPECT_EQ(off.previous_id, 0x0102u);
  EXPECT_EQ(off.kind, model::SpanChangeKind::kLeave);
  EXPECT_LE(on.at_mono_ns, off.at_mono_ns);
  EXPECT_TRUE(loss.NonZero().empty());
}

TEST(LoopRingReaderTest, ForkedChildHasARingOfItsOwnThatOutlivesIt) {
  base::LossCounters loss;
  auto own = OpenOwn(&loss);
  ASSERT_TRUE(own.ok());
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  pid_t child = fork();
  if (child == 0) {
    tailspan_context_set(kTrace, kSpan, nullptr);
    char byte = 'x';
    if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) _exit(1);
    tailspan_context_clear();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  auto reader = OpenOwn(&loss, child);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_NE(reader->identity(), own->identity());
  ASSERT_EQ(write(done[1], "x", 1), 1);
  waitpid(child, nullptr, 0);
  model::RecordBatch batch;
  ASSERT_TRUE(reader->Drain(&batch));
  ASSERT_EQ(batch.span_changes.size(), 2u);
  EXPECT_EQ(batch.span_changes[0].pid, child);
}

// As in a container: the process calls itself 1.
TEST(LoopRingReaderTest, ThreadsOfAnotherPidNamespaceHaveOurNumbers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a pid namespace";
  int ready[2], done[2], number[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(number), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t maker = fork();
  if (maker == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(2);
    const pid_t outer = fork();
    if (outer == 0) {
      std::thread([&] {
        tailspan_context_set(kTrace, kSpan, nullptr);
        char byte = 'x';
        if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) _exit(1);
      }).join();
      _exit(0);
    }
    if (write(number[1], &outer, sizeof outer) != sizeof outer) _exit(1);
    waitpid(outer, nullptr, 0);
    _exit(0);
  }
  pid_t child = 0;
  char byte;
  ASSERT_EQ(read(number[0], &child, sizeof child), ssize_t{sizeof child});
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  base::LossCounters loss;
  auto reader = OpenOwn(&loss, child);
  model::RecordBatch batch;
  const bool is_drained = reader.ok() && reader->Drain(&batch);
  int threads = 0;
  for (const auto& change : batch.span_changes) {
    threads += access(("/proc/" + std::to_string(child) + "/task/" + std::to_string(change.tid)).c_str(), F_OK) == 0;
    EXPECT_NE(change.tid, child);
  }
  EXPECT_EQ(write(done[1], "x", 1), 1);
  waitpid(maker, nullptr, 0);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_TRUE(is_drained);
  EXPECT_EQ(threads, 1);
}

TEST(LoopRingReaderTest, FoundByItsMappingWhenTheDescriptorIsGone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs CAP_SYS_ADMIN for /proc/PID/map_files";
  base::LossCounters loss;
  auto own = OpenOwn(&loss);
  ASSERT_TRUE(own.ok());
  auto context = ReadProcessContext(getpid());
  ASSERT_TRUE(context.ok());
  int saved = dup(context->ring_fd);
  int null = open("/dev/null", O_RDONLY);
  ASSERT_EQ(dup2(null, context->ring_fd), context->ring_fd);  // what a program that closes everything leads to
  auto reader = LoopRingReader::Open(getpid(), *context, &loss);
  dup2(saved, context->ring_fd);
  close(saved);
  close(null);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(reader->identity(), own->identity());
}

TEST(LoopRingReaderTest, AForeignDescriptorIsNotOpened) {
  base::LossCounters loss;
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  int plain = memfd_create("tailspan_other", MFD_CLOEXEC);
  for (int fd : {pipes[0], plain, open("/dev/zero", O_RDONLY | O_CLOEXEC)}) {
    ProcessContext context;
    context.ring_fd = fd;
    context.ring_version = TAILSPAN_RING_VERSION;
    auto reader = LoopRingReader::Open(getpid(), context, &loss);
    // Ours is found by its mapping then; never the file behind the number.
    if (reader.ok()) {
      EXPECT_EQ(reader->identity(), OpenOwn(&loss)->identity());
    }
    close(fd);
  }
  close(pipes[1]);
}

TEST(LoopRingReaderTest, UnsealedShortAndStrangeRingsAreRefused) {
  base::LossCounters loss;
  FakeRing unsealed(F_SEAL_SHRINK), small(F_SEAL_SHRINK | F_SEAL_GROW, TAILSPAN_RING_BYTES - 4096);
  FakeRing magic, version, layout;
  magic.Header()->magic[0] = 'X';
  version.Header()->version = 9;
  layout.Header()->record_bytes = 64;
  for (FakeRing* ring : {&unsealed, &magic, &version, &layout}) EXPECT_FALSE(ring->Open(&loss).ok());
  EXPECT_FALSE(small.Open(&loss).ok());
  EXPECT_EQ(loss.Get(Loss::kLoopRingBad), 5u);
}

TEST(LoopRingReaderTest, LappedRecordsAreCountedAndLeaveAHole) {
  base::LossCounters loss;
  FakeRing ring;
  auto reader = ring.Open(&loss);
  ASSERT_TRUE(reader.ok());
  const uint32_t slot = TAILSPAN_LOOP_SLOTS;
  model::RecordBatch batch;
  for (int i = 0; i < 10; ++i) ring.WriteStep(slot, 1ull << 48 | (i + 1));
  ASSERT_TRUE(reader->Drain(&batch));
  ASSERT_EQ(batch.steps.size(), 10u);
  EXPECT_EQ(batch.steps[9].step_id, 1ull << 48 | 10);
  for (unsigned i = 10; i < 10 + TAILSPAN_PLAIN_RECORDS + 50; ++i) ring.WriteStep(slot, 1ull << 48 | (i + 1));
  batch = {};
  ASSERT_TRUE(reader->Drain(&batch));
  // The oldest that still stands may be being written over at this moment: it is given up too.
  EXPECT_EQ(batch.steps.size(), TAILSPAN_PLAIN_RECORDS - 1);
  EXPECT_EQ(loss.Get(Loss::kLoopRingOverwritten), 51u);
  ASSERT_EQ(batch.loop_holes.size(), 1u);
  EXPECT_EQ(batch.loop_holes[0].record_count, 51u);
  EXPECT_EQ(batch.loop_holes[0].after_mono_ns, 309);
  EXPECT_EQ(batch.loop_holes[0].before_mono_ns, 300 + 61);
}

TEST(LoopRingReaderTest, RecordsLostOnPurposeAreCountedAndLeaveHoles) {
  base::LossCounters loss;
  FakeRing ring;
  auto reader = ring.Open(&loss);
  ASSERT_TRUE(reader.ok());
  reader->DropOnPurpose(100);
  model::RecordBatch batch;
  for (uint64_t i = 1; i <= 5000; ++i) ring.WriteStep(0, 1ull << 48 | i);
  ASSERT_TRUE(reader->Drain(&batch));
  const uint64_t lost = loss.Get(Loss::kLoopRingDropOnPurpose);
  EXPECT_EQ(batch.steps.size() + lost, 5000u);
  EXPECT_GT(lost, 400u);
  EXPECT_LT(lost, 600u);
  uint64_t in_holes = 0, missing = 0, next = 1;
  for (const auto& hole : batch.loop_holes) in_holes += hole.record_count;
  for (const auto& step : batch.steps) {
    missing += (step.step_id & 0xFFFFFFFF) - next;
    next = (step.step_id & 0xFFFFFFFF) + 1;
  }
  EXPECT_EQ(in_holes, missing) << "each hole stands between the records around it";
}

TEST(LoopRingReaderTest, TornAndImplausibleRecordsAreCountedApart) {
  base::LossCounters loss;
  FakeRing ring;
  auto reader = ring.Open(&loss);
  ASSERT_TRUE(reader.ok());
  for (int i = 0; i < 8; ++i) ring.WriteStep(0, 1ull << 48 | (i + 1));
  ring.Record(0, 1)->seq = 3;                  // still being written
  ring.Record(0, 2)->end_ns = 10;              // ends before it starts
  ring.Record(0, 3)->end_ns = UINT64_MAX - 5;  // the far future
  ring.Record(0, 4)->type = 99;
  ring.Record(0, 5)->kind = 0;
  ring.Record(0, 6)->site = 60000;
  model::RecordBatch batch;
  ASSERT_TRUE(reader->Drain(&batch));
  EXPECT_EQ(batch.steps.size(), 2u);
  EXPECT_EQ(loss.Get(Loss::kLoopRingTorn), 1u);
  EXPECT_EQ(loss.Get(Loss::kLoopRingBad), 5u);
}

// inode 42, descriptor 9, since 200, told at 300.
TailspanRingSocket Socket(uint8_t local_version, uint8_t remote_version) {
  TailspanRingSocket socket = {};
  socket.inode = 42;
  socket.start_ns = 200;
  socket.end_ns = 300;
  socket.fd = 9;
  socket.local_version = local_version;
  socket.remote_version = remote_version;
  socket.local_port = 40001;
  socket.remote_port = 443;
  std::memset(socket.pad, 0xEE, sizeof socket.pad);  // what an older record left behind
  socket.pad2 = 0xEE;
  return socket;
}

TEST(LoopRingReaderTest, SocketsOfBothVersions) {
  base::LossCounters loss;
  FakeRing ring;
  auto reader = ring.Open(&loss);
  ASSERT_TRUE(reader.ok());
  const uint8_t v4[16] = {10, 0, 0, 2, 0xEE, 0xEE}, v6[16] = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};
  const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3};
  TailspanRingSocket ipv4 = Socket(4, 4), ipv6 = Socket(6, 6), both = Socket(6, 6), listens = Socket(4, 0);
  for (auto* address : {ipv4.local, ipv4.remote, listens.local}) std::memcpy(address, v4, 16);
  for (auto* address : {ipv6.local, ipv6.remote}) std::memcpy(address, v6, 16);
  for (auto* address : {both.local, both.remote}) std::memcpy(address, mapped, 16);
  TailspanRingSocket local_socket = Socket(0, 0), no_socket = Socket(0, 0);
  no_socket.inode = 0;
  TailspanRingSocket old = ipv4;
  old.end_ns = static_cast<uint64_t>(base::MonoNowNs());  // its peer became known after any time
  for (const auto& socket : {ipv4, ipv6, both, listens, local_socket, no_socket, old}) ring.WriteSocket(0, socket);
  model::RecordBatch batch;
  ASSERT_TRUE(reader->Drain(&batch));
  EXPECT_TRUE(loss.NonZero().empty());
  std::string text;
  for (const auto& s : batch.sockets) {
    EXPECT_EQ(s.pid, 5);
    EXPECT_EQ(s.fd, 9);
    EXPECT_EQ(s.from_mono_ns, 200);
    EXPECT_TRUE(s.registered);
    text += std::to_string(s.inode) + " " + ToText(s.local) + " " + ToText(s.remote) + "\n";
  }
  EXPECT_EQ(text,
            "42 10.0.0.2:40001 10.0.0.2:443\n42 [2001:db8::7]:40001 [2001:db8::7]:443\n"
            "42 10.0.0.3:40001 10.0.0.3:443\n42 10.0.0.2:40001 \n42  \n0  \n42 10.0.0.2:40001 10.0.0.2:443\n");
  EXPECT_EQ(batch.sockets[0].remote.bytes[4], 0);  // nothing of what stands behind an IPv4 address
}

TEST(LoopRingReaderTest, SocketsThatCannotBeAreCounted) {
  base::LossCounters loss;
  FakeRing ring;
  auto reader = ring.Open(&loss);
  ASSERT_TRUE(reader.ok());
  std::vector<TailspanRingSocket> bad(8, Socket(4, 4));
  bad[0].fd = -1;
  bad[1].local_version = 5;
  bad[2].remote_version = 255;
  bad[3].local_version = 0;  // a peer without an end of its own
  bad[4].inode = 0;          // addresses of no socket
  bad[5].start_ns = 301;
  bad[6].start_ns = 0;
  bad[7].end_ns = UINT64_MAX;
  for (const auto& socket : bad) ring.WriteSocket(0, socket);
  model::RecordBatch batch;
  ASSERT_TRUE(reader->Drain(&batch));
  EXPECT_TRUE(batch.sockets.empty());
  EXPECT_EQ(loss.Get(Loss::kLoopRingBad), bad.size());
}

TEST(LoopRingReaderTest, HeadsThatLieDoNotHoldTheReaderUp) {
  base::LossCounters loss;
  FakeRing ring;
  auto reader = ring.Open(&loss);
  ASSERT_TRUE(reader.ok());
  model::RecordBatch batch;
  for (uint64_t head : {UINT64_MAX, uint64_t{1} << 50, uint64_t{3}, uint64_t{0}}) {
    for (uint32_t i = 0; i < TAILSPAN_SLOTS; ++i) ring.Slot(i)->head = head;
    ASSERT_TRUE(reader->Drain(&batch));
  }
  EXPECT_TRUE(batch.steps.empty());
  EXPECT_GE(loss.Get(Loss::kLoopRingBad), TAILSPAN_SLOTS);
}

TEST(LoopRingReaderTest, ThreadsAndSitesWithoutRoomAreCountedOnce) {
  base::LossCounters loss;
  FakeRing ring;
  auto reader = ring.Open(&loss);
  ASSERT_TRUE(reader.ok());
  ring.Header()->threads_lost = 3;
  ring.Header()->sites_lost = 5;
  model::RecordBatch batch;
  ASSERT_TRUE(reader->Drain(&batch));
  ASSERT_TRUE(reader->Drain(&batch));
  EXPECT_EQ(loss.Get(Loss::kLoopRingSlotsFull), 3u);
  EXPECT_EQ(loss.Get(Loss::kLoopRingSitesFull), 5u);
}

TEST(LoopRingReaderTest, NoiseIsNeverBelieved) {
  base::LossCounters loss;
  FakeRing ring;
  auto reader = ring.Open(&loss);
  ASSERT_TRUE(reader.ok());
  std::mt19937_64 random(3);
  auto* words = reinterpret_cast<uint64_t*>(ring.bytes + TAILSPAN_RING_SITES_AT);
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < (TAILSPAN_RING_RECORDS_AT - TAILSPAN_RING_SITES_AT) / 8 + 12 * 4096; ++i) {
      words[i] = random() % 4 ? random() % 4096 : random();
    }
    ring.Header()->sites_used = static_cast<uint32_t>(random());
    model::RecordBatch batch;
    ASSERT_TRUE(reader->Drain(&batch));
    EXPECT_LE(batch.sites.size(), TAILSPAN_SITES);
    for (const auto& site : batch.sites) EXPECT_LT(site.name.size(), 97u);
    for (const auto& step : batch.steps) EXPECT_LE(step.start_mono_ns, step.end_mono_ns);
    for (const auto& socket : batch.sockets)
      EXPECT_TRUE(socket.fd >= 0 && (socket.local.family || !socket.remote.family));
  }
}

TEST(LoopRingReaderTest, ARaceLosesButNeverMixes) {
  base::LossCounters loss;
  auto reader = OpenOwn(&loss);
  ASSERT_TRUE(reader.ok());
  model::RecordBatch batch;
  ASSERT_TRUE(reader->Drain(&batch));
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    TailspanThreadState* state = tailspan_state();
    while (!stop) {
      const uint64_t now_ns = tailspan_now_ns();
      TailspanRingRecord* record = tailspan_begin(state, TAILSPAN_STEP, TAILSPAN_SOON);
      record->step = tailspan_next_step(state);
      record->ready_ns = record->start_ns = record->end_ns = now_ns;
      record->span = record->waker_step = record->waker_span = record->task = record->outer_span = now_ns;
      tailspan_finish(state, record);
    }
  });
  uint64_t last = 0, seen = 0;
  uint64_t drains = 0;
  auto drain = [&] {
    batch = {};
    EXPECT_TRUE(reader->Drain(&batch));
    for (const auto& step : batch.steps) {
      EXPECT_EQ(static_cast<uint64_t>(step.start_mono_ns), step.task);
      EXPECT_EQ(static_cast<uint64_t>(step.end_mono_ns), step.waker_step_id);
      EXPECT_GT(step.step_id, last);
      last = step.step_id;
      ++seen;
    }
  };
  while (seen < 100000 && drains++ < 100000) drain();
  stop = true;
  writer.join();
  drain();
  ASSERT_GE(seen, 100000u);
  const uint64_t written = last & 0xFFFFFFFFFF;
  EXPECT_EQ(loss.Get(Loss::kLoopRingTorn), 0u);
  EXPECT_EQ(loss.Get(Loss::kLoopRingBad), 0u);
  EXPECT_GE(seen + loss.Get(Loss::kLoopRingOverwritten), written);
}

}  // namespace
}  // namespace tailspan::probe
