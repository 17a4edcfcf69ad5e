#include "cli/process_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "context/thread_state.h"

namespace tailspan::cli {
namespace {

// The first seconds of a process are looked at twice when it is attached to: as a followed process's child, and as one
// of those to attach to.
TEST(ProcessWatch, AProcessThatIsAddedAgainKeepsItsKeyAndRing) {
  base::LossCounters loss;
  ProcessWatch watch(nullptr, &loss, 0);
  model::RecordBatch batch;
  watch.Add(getpid(), &batch);
  ASSERT_EQ(batch.processes.size(), 1u);
  const model::ProcessKey key = batch.processes[0].key;
  watch.Update(&batch);
  ASSERT_TRUE(batch.processes.back().has_loop_ring);
  for (int i = 0; i < 100; ++i) watch.Add(getpid(), &batch);
  for (const model::ProcessInfo& info : batch.processes) EXPECT_EQ(info.key, key);
  EXPECT_TRUE(batch.processes.back().has_loop_ring);
  batch = {};
  std::thread([] {
    const uint8_t trace[16] = {1}, span[8] = {2};
    tailspan_context_set(trace, span, nullptr);
    tailspan_context_clear();
  }).join();
  watch.Update(&batch);
  EXPECT_EQ(batch.span_changes.size(), 2u);
}

}  // namespace
}  // namespace tailspan::cli
