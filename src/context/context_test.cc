#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "context/tailspan_scope.h"
#include "context/thread_state.h"

namespace {

const uint8_t kTrace[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
const uint8_t kSpan[8] = {21, 22, 23, 24, 25, 26, 27, 28};
const uint8_t kOther[8] = {31, 32, 33, 34, 35, 36, 37, 38};
const uint8_t kUuid[16] = {41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56};

// The record as an outside reader sees it: through the exported pointer, by the offsets of the standard.
const uint8_t* Bytes() { return static_cast<const uint8_t*>(otel_thread_ctx_v1); }

uint64_t ChangedNs() {
  uint64_t ns;
  std::memcpy(&ns, Bytes() + 30, 8);
  return ns;
}

TEST(ContextTest, NothingIsWrong) { EXPECT_STREQ(tailspan_context_problem(), nullptr); }

TEST(ContextTest, RecordHasTheStandardsLayout) {
  std::thread([] {
    EXPECT_EQ(otel_thread_ctx_v1, nullptr);
    const uint64_t before_ns = tailspan_now_ns();
    tailspan_context_set(kTrace, kSpan, kUuid);
    ASSERT_NE(otel_thread_ctx_v1, nullptr);
    const uint8_t* bytes = Bytes();
    EXPECT_EQ(std::memcmp(bytes, kTrace, 16), 0);
    EXPECT_EQ(std::memcmp(bytes + 16, kSpan, 8), 0);
    EXPECT_EQ(bytes[24], 1);  // valid
    EXPECT_EQ(bytes[25], 1);  // sampled
    uint16_t attrs_size;
    std::memcpy(&attrs_size, bytes + 26, 2);
    EXPECT_EQ(attrs_size, 28);
    EXPECT_EQ(bytes[28], 0);
    EXPECT_EQ(bytes[29], 8);
    EXPECT_EQ(bytes[38], 1);
    EXPECT_EQ(bytes[39], 16);
    EXPECT_EQ(std::memcmp(bytes + 40, kUuid, 16), 0);
    EXPECT_GE(ChangedNs(), before_ns);
    EXPECT_LE(ChangedNs(), tailspan_now_ns());
  }).join();
}

TEST(ContextTest, TheEndOfASpanIsDated) {
  std::thread([] {
    tailspan_context_clear();  // never had one: nothing to date
    EXPECT_EQ(otel_thread_ctx_v1, nullptr);
    tailspan_context_set(kTrace, kSpan, kUuid);
    const uint64_t set_ns = ChangedNs();
    tailspan_context_clear();
    ASSERT_NE(otel_thread_ctx_v1, nullptr);
    const uint8_t zeros[24] = {};
    EXPECT_EQ(std::memcmp(Bytes(), zeros, 24), 0);
    EXPECT_EQ(std::memcmp(Bytes() + 40, zeros, 16), 0);
    EXPECT_EQ(Bytes()[24], 1);
    EXPECT_GE(ChangedNs(), set_ns);
    const uint64_t clear_ns = ChangedNs();
    tailspan_context_clear();
    EXPECT_EQ(ChangedNs(), clear_ns);
  }).join();
}

TEST(ContextTest, ScopesNest) {
  std::thread([] {
    uint8_t trace[16], span[8], uuid[16];
    {
      tailspan::context::SpanScope outer(kTrace, kSpan, kUuid);
      {
        tailspan::context::SpanScope inner(kTrace, kOther);
        ASSERT_EQ(tailspan_context_get(trace, span, uuid), 1);
        EXPECT_EQ(std::memcmp(span, kOther, 8), 0);
      }
      ASSERT_EQ(tailspan_context_get(trace, span, uuid), 1);
      EXPECT_EQ(std::memcmp(span, kSpan, 8), 0);
      EXPECT_EQ(std::memcmp(uuid, kUuid, 16), 0);
    }
    EXPECT_EQ(tailspan_context_get(trace, span, uuid), 0);
  }).join();
}

TEST(ContextTest, ThreadsAreApart) {
  tailspan_context_set(kTrace, kSpan, nullptr);
  std::thread([] { EXPECT_EQ(otel_thread_ctx_v1, nullptr); }).join();
  tailspan_context_clear();
}

TEST(ContextTest, ForkedChildStartsClean) {
  tailspan_context_set(kTrace, kSpan, nullptr);
  const uint64_t parent_step = tailspan_state()->plain_step;
  pid_t child = fork();
  if (child == 0) {
    int bad = otel_thread_ctx_v1 != nullptr ? 1 : 0;
    if (tailspan_context_problem()) bad |= 2;
    tailspan_context_set(kTrace, kOther, nullptr);  // writes into the child's own ring
    if (tailspan_state()->plain_step == parent_step) bad |= 4;
    if (tailspan_state()->slot->head != 1) bad |= 8;
    _exit(bad);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(std::memcmp(Bytes() + 16, kSpan, 8), 0);
  tailspan_context_clear();
}

TEST(ContextTest, SlotsOfEndedThreadsAreUsedAgain) {
  std::thread([] { tailspan_context_set(kTrace, kSpan, nullptr); }).join();
  const TailspanRingSlot* slot = nullptr;
  std::thread([&] {
    tailspan_context_set(kTrace, kSpan, nullptr);
    slot = tailspan_state()->slot;
  }).join();
  for (unsigned i = 0; i < 2 * TAILSPAN_SLOTS; ++i) {
    std::thread([&] {
      tailspan_context_set(kTrace, kSpan, nullptr);
      EXPECT_EQ(tailspan_state()->slot, slot);
      tailspan_enter_loop_slot(tailspan_state());
      EXPECT_NE(tailspan_state()->slot, slot);
      EXPECT_EQ(tailspan_state()->record_mask, TAILSPAN_LOOP_RECORDS - 1);
      tailspan_context_clear();
    }).join();
  }
}

TEST(ContextTest, AThreadOutOfSlotsStillPublishes) {
  std::thread holders[8];
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  // Loop slots run out after 16 threads; a thread that finds none keeps its plain slot.
  for (auto& holder : holders) {
    holder = std::thread([&] {
      tailspan_context_set(kTrace, kSpan, nullptr);
      tailspan_enter_loop_slot(tailspan_state());
      char byte;
      EXPECT_EQ(read(pipes[0], &byte, 1), 1);
    });
  }
  std::thread([] {
    tailspan_context_set(kTrace, kOther, nullptr);
    EXPECT_EQ(std::memcmp(Bytes() + 16, kOther, 8), 0);
  }).join();
  ASSERT_EQ(write(pipes[1], "12345678", 8), 8);
  for (auto& holder : holders) holder.join();
  close(pipes[0]);
  close(pipes[1]);
}

}  // namespace
