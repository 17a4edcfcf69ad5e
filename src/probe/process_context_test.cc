#include "probe/process_context.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "context/thread_state.h"

namespace tailspan::probe {
namespace {

struct RawHeader {
  char signature[8] = {'O', 'T', 'E', 'L', '_', 'C', 'T', 'X'};
  uint32_t version = 2, payload_bytes = 0;
  uint64_t published_mono_ns = 1, payload = 0;
};

// A child that publishes `header` and `payload` under the standard's name, in place of the library's own context.
template <typename Check>
void WithForeignContext(RawHeader header, const std::vector<uint8_t>& payload, Check check) {
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  pid_t child = fork();
  if (child == 0) {
    auto maps = ReadMaps(getpid());
    for (const auto& range : FindMappings(*maps, "OTEL_CTX")) {
      munmap(reinterpret_cast<void*>(range.start), range.end - range.start);
    }
    int named = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (ftruncate(named, 4096)) _exit(1);
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, named, 0);
    if (header.payload == 0) header.payload = reinterpret_cast<uint64_t>(memory) + sizeof header;
    std::memcpy(memory, &header, sizeof header);
    std::copy(payload.begin(), payload.end(), static_cast<uint8_t*>(memory) + sizeof header);
    char byte = 'x';
    if (write(ready[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) _exit(1);
    _exit(0);
  }
  close(ready[1]);  // so that a child that dies is seen
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  check(child);
  ASSERT_EQ(write(done[1], "x", 1), 1);
  waitpid(child, nullptr, 0);
  for (int fd : {ready[0], done[0], done[1]}) close(fd);
}

TEST(ProcessContextTest, ReadsWhatTheLibraryPublishes) {
  tailspan_context_set_runtime("cpython", "3.11.2");
  auto context = ReadProcessContext(getpid());
  ASSERT_TRUE(context.ok()) << context.error().message;
  EXPECT_TRUE(context->has_tls_offset);
  char* pointer = static_cast<char*>(__builtin_thread_pointer()) + context->tls_offset;
  EXPECT_EQ(static_cast<void*>(pointer), static_cast<void*>(&otel_thread_ctx_v1));
  EXPECT_GE(context->ring_fd, 0);
  EXPECT_EQ(context->ring_version, TAILSPAN_RING_VERSION);
  EXPECT_EQ(context->runtime, "cpython 3.11.2");
  EXPECT_EQ(context->keys, (std::vector<std::string>{TAILSPAN_KEY_CHANGED_NAME, TAILSPAN_KEY_UUID_NAME}));
  EXPECT_GT(context->published_mono_ns, 0);
}

TEST(ProcessContextTest, ForkedChildHasItsOwn) {
  auto own = ReadProcessContext(getpid());
  ASSERT_TRUE(own.ok());
  int done[2];
  ASSERT_EQ(pipe(done), 0);
  pid_t child = fork();
  if (child == 0) {
    char byte;
    _exit(read(done[0], &byte, 1) == 1 ? 0 : 1);
  }
  usleep(50000);
  auto context = ReadProcessContext(child);
  ASSERT_TRUE(context.ok()) << context.error().message;
  EXPECT_EQ(context->tls_offset, own->tls_offset);
  EXPECT_GT(context->published_mono_ns, own->published_mono_ns);
  ASSERT_EQ(write(done[1], "x", 1), 1);
  waitpid(child, nullptr, 0);
}

TEST(ProcessContextTest, NoProcessNoContext) {
  EXPECT_EQ(ReadProcessContext(0x7FFFFFFF).error().code, base::Code::kNotFound);
  EXPECT_FALSE(ReadProcessContext(2).ok());  // a kernel thread, or nothing, in every container
}

TEST(ProcessContextTest, BadHeadersAreRefused) {
  RawHeader wrong_signature, wrong_version, huge, unmapped, unpublished;
  wrong_signature.signature[0] = 'X';
  wrong_version.version = 3;
  huge.payload_bytes = kContextPayloadBytesMax + 1;
  unmapped.payload_bytes = 64;
  unmapped.payload = 16;
  unpublished.published_mono_ns = 0;
  WithForeignContext({}, {}, [](pid_t pid) { EXPECT_TRUE(ReadProcessContext(pid).ok()); });
  for (const RawHeader& header : {wrong_signature, wrong_version, huge, unmapped, unpublished}) {
    WithForeignContext(header, {}, [](pid_t pid) { EXPECT_FALSE(ReadProcessContext(pid).ok()); });
  }
}

TEST(ProcessContextTest, AnEmptyPayloadIsAForeignPublisher) {
  WithForeignContext({}, {}, [](pid_t pid) {
    auto context = ReadProcessContext(pid);
    ASSERT_TRUE(context.ok());
    EXPECT_FALSE(context->has_tls_offset);
    EXPECT_EQ(context->ring_fd, -1);
  });
}

TEST(ProcessContextTest, CutPayloadsAreRefusedOrShort) {
  // extra attribute {"tailspan.ring_fd": 7}, by hand
  const std::vector<uint8_t> payload = {0x12, 22,  0x0A, 16,  't', 'a', 'i', 'l', 's',  'p', 'a',  'n',
                                        '.',  'r', 'i',  'n', 'g', '_', 'f', 'd', 0x12, 2,   0x18, 7};
  auto whole = ParseProcessContext(payload);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->ring_fd, 7);
  for (size_t size = 1; size < payload.size(); ++size) {
    EXPECT_FALSE(ParseProcessContext(std::span(payload).first(size)).ok()) << size;
  }
}

TEST(ProcessContextTest, NoiseNeverBreaksTheParser) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> payload(random() % 80);
    for (auto& byte : payload) byte = static_cast<uint8_t>(random() % 3 ? random() % 32 : random());
    auto context = ParseProcessContext(payload);
    if (context.ok()) {
      EXPECT_LE(context->keys.size(), 256u);
    }
  }
}

TEST(ProcessContextTest, MappingNamesMustMatchWhole) {
  const char* maps =
      "7f0000000000-7f0000001000 rw-p 00000000 00:00 0  [anon:OTEL_CTX]\n"
      "7f0000002000-7f0000003000 rw-p 00000000 00:01 9  /memfd:OTEL_CTX (deleted)\n"
      "7f0000004000-7f0000005000 rw-p 00000000 00:00 0  [anon:OTEL_CTX_NOT]\n"
      "7f0000006000-7f0000007000 ---p 00000000 00:00 0  [anon:OTEL_CTX]\n"
      "7f0000008000-7f0000009000 rw-p 00000000 08:01 4  /tmp/[anon:OTEL_CTX]\n"
      "garbage\n\n"
      "7f000000b000-7f000000a000 rw-p 00000000 00:00 0  [anon:OTEL_CTX]";
  auto found = FindMappings(maps, "OTEL_CTX");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].start, 0x7f0000000000u);
  EXPECT_EQ(found[1].end, 0x7f0000003000u);
}

}  // namespace
}  // namespace tailspan::probe
