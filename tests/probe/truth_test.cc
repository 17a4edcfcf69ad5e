// The probes against independent truth: the programs' own clocks, the scheduler's books, rusage.
// Quick by default; TAILSPAN_LONG_TESTS=1 takes at least 1,000 waits of each class.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "probe/host_facts.h"
#include "probe/recording.h"

namespace tailspan::probe_test {
namespace {

using model::Cause;
using model::ThreadInterval;
using model::WaitClass;

bool IsLong() { return std::getenv("TAILSPAN_LONG_TESTS") != nullptr; }

#define SKIP_WITHOUT_PROBES()                                                         \
  do {                                                                                \
    const probe::HostFacts facts = probe::ReadHostFacts();                            \
    if (!facts.can_probe) GTEST_SKIP() << "no kernel probes here: " << facts.obstacle; \
  } while (false)

std::string Program(const std::string& name) { return std::string(PROBE_PROGRAMS) + "/" + name; }

std::string ScratchFile(const std::string& name) {
  return "/tmp/tailspan_" + name + "_" + std::to_string(getpid()) + ".txt";
}

std::vector<std::vector<int64_t>> ReadNumbers(const std::string& path) {
  std::vector<std::vector<int64_t>> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::vector<int64_t> row;
    const char* at = line.c_str();
    for (char* end; *at; at = end) {
      const long long number = std::strtoll(at, &end, 10);
      if (end == at) break;
      row.push_back(number);
    }
    rows.push_back(row);
  }
  unlink(path.c_str());
  return rows;
}

using ByThread = std::map<int32_t, std::vector<const ThreadInterval*>>;

ByThread GroupByThread(const Recording& recording) {
  ByThread threads;
  for (const ThreadInterval& one : recording.batch.intervals) threads[one.tid].push_back(&one);
  return threads;
}

// The law of the record: consecutive numbers, no gap, and each window is exactly what it says.
void ExpectWhole(const Recording& recording) {
  EXPECT_EQ(recording.losses.ring_full, 0u);
  EXPECT_EQ(recording.losses.undecodable, 0u);
  EXPECT_EQ(recording.losses.holes, 0u);
  for (const auto& [tid, intervals] : GroupByThread(recording)) {
    for (size_t i = 0; i < intervals.size(); ++i) {
      const ThreadInterval& one = *intervals[i];
      int64_t inside = one.on_cpu_ns;
      for (const int64_t ns : one.short_ns) inside += ns;
      EXPECT_EQ(inside, one.wait_start_mono_ns - one.window_start_mono_ns) << tid << " #" << one.sequence;
      if (i == 0) continue;
      EXPECT_EQ(one.sequence, intervals[i - 1]->sequence + 1) << tid;
      EXPECT_EQ(one.window_start_mono_ns, intervals[i - 1]->wait_end_mono_ns) << tid;
    }
  }
}

int64_t Overlap(int64_t from, int64_t to, int64_t start, int64_t end) {
  return std::max<int64_t>(0, std::min(to, end) - std::max(from, start));
}

struct Kind {
  const char* name;
  Cause cause;
  int quick, full;
  double cause_share;  // of the blocked time, at least
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class KnownWaits : public ::testing::TestWithParam<Kind> {};

TEST_P(KnownWaits, AgreeWithTheProgramsClock) {
  SKIP_WITHOUT_PROBES();
  const Kind& kind = GetParam();
  const std::string out = ScratchFile(kind.name);
  const std::string count = std::to_string(IsLong() ? kind.full : kind.quick);
  auto recorded = RecordCommand({Program("known_waits"), kind.name, count, out}, {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  ASSERT_EQ(recorded->status, 0);
  ExpectWhole(*recorded);
  const ByThread threads = GroupByThread(*recorded);
  int waits = 0, close = 0;
  int64_t blocked_ns = 0, right_ns = 0, truth_ns = 0, seen_ns = 0;
  for (const auto& row : ReadNumbers(out)) {
    ASSERT_EQ(row.size(), 4u);
    // What the thread ran inside the call, by its own CPU clock, is no wait.
    const int64_t start = row[1], end = row[2], length = end - start - row[3];
    int64_t seen = 0;
    const auto thread = threads.find(static_cast<int32_t>(row[0]));
    ASSERT_NE(thread, threads.end());
    for (const ThreadInterval* one : thread->second) {
      seen += Overlap(start, end, one->wait_start_mono_ns, one->wait_end_mono_ns);
      const int64_t blocked = one->wake_mono_ns ? Overlap(start, end, one->wait_start_mono_ns, one->wake_mono_ns) : 0;
      blocked_ns += blocked;
      if (one->cause == kind.cause) right_ns += blocked;
      // Sums lie somewhere in their window: only those wholly inside can be counted.
      if (one->window_start_mono_ns < start || one->wait_start_mono_ns > end) continue;
      for (const int64_t ns : one->short_ns) seen += ns;
    }
    if (length < 1'000'000) continue;
    ++waits;
    truth_ns += length;
    seen_ns += seen;
    close += std::abs(seen - length) <= std::max<int64_t>(length * 3 / 100, 100'000);
  }
  std::printf("%-10s %5d waits >= 1 ms: %.2f %% within 3 %% or 100 us, sum %+.3f %%; cause right for %.2f %% of blocked time\n",
              kind.name, waits, waits ? 100.0 * close / waits : 0.0,
              truth_ns ? 100.0 * double(seen_ns - truth_ns) / double(truth_ns) : 0.0,
              100.0 * double(right_ns) / double(blocked_ns));
  // Disk waits are as long as the disk makes them; their causes count, whatever their length.
  if (kind.cause != Cause::kDiskRead && kind.cause != Cause::kDiskWrite && kind.cause != Cause::kPageFault) {
    EXPECT_GE(waits, (IsLong() ? kind.full : kind.quick) * 9 / 10);
  }
  EXPECT_GE(close, waits * 99 / 100);
  EXPECT_GE(double(right_ns), kind.cause_share * double(blocked_ns));
}

INSTANTIATE_TEST_SUITE_P(Probe, KnownWaits,
                         ::testing::Values(Kind{"sleep", Cause::kSleep, 60, 1000, 0.99},
                                           Kind{"pipe", Cause::kIpc, 60, 1000, 0.99},
                                           Kind{"unix", Cause::kIpc, 60, 1000, 0.99},
                                           Kind{"recv", Cause::kNetRecv, 60, 1000, 0.99},
                                           Kind{"poll_read", Cause::kNetRecv, 60, 1000, 0.99},
                                           Kind{"epoll", Cause::kNetRecv, 60, 1000, 0.99},
                                           Kind{"send", Cause::kNetSend, 60, 1000, 0.99},
                                           Kind{"poll_write", Cause::kNetSend, 60, 1000, 0.99},
                                           Kind{"lock", Cause::kLock, 60, 1000, 0.99},
                                           Kind{"child", Cause::kChildProcess, 60, 1000, 0.99},
                                           Kind{"fsync", Cause::kDiskWrite, 30, 1000, 0.99},
                                           Kind{"read", Cause::kDiskRead, 60, 2000, 0.99},
                                           Kind{"fault", Cause::kPageFault, 60, 2000, 0.99}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Truth, RunQueueTimeAgreesWithSchedstat) {
  SKIP_WITHOUT_PROBES();
  const std::string out = ScratchFile("busy");
  auto recorded = RecordCommand({Program("busy_threads"), "6", IsLong() ? "5000" : "700", out}, {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  ExpectWhole(*recorded);
  const ByThread threads = GroupByThread(*recorded);
  int64_t truth = 0, seen = 0, long_waits = 0, blamed = 0, to_blame = 0;
  for (const auto& row : ReadNumbers(out)) {
    ASSERT_EQ(row.size(), 6u);
    truth += row[2] - row[3];
    for (const ThreadInterval* one : threads.at(static_cast<int32_t>(row[0]))) {
      if (one->wait_end_mono_ns <= row[4] || one->wait_end_mono_ns > row[5]) continue;
      if (one->wake_mono_ns) seen += one->wait_end_mono_ns - one->wake_mono_ns;
      seen += one->short_ns[static_cast<size_t>(WaitClass::kRunQueue)];
      if (!one->wake_mono_ns || one->wait_end_mono_ns - one->wake_mono_ns < 50'000) continue;
      ++long_waits;
      to_blame += one->wait_end_mono_ns - one->wake_mono_ns;
      blamed += one->occupants[0].ns + one->occupants[1].ns + one->occupant_idle_ns;
    }
  }
  std::printf("run queue: %ld ms by schedstat, %+.2f %% seen; %ld waits over 50 us, %.1f %% of their time has an occupant\n",
              long(truth / 1'000'000), 100.0 * double(seen - truth) / double(truth), long(long_waits),
              100.0 * double(blamed) / double(to_blame));
  EXPECT_NEAR(double(seen), double(truth), 0.03 * double(truth));
  EXPECT_GE(double(blamed), 0.5 * double(to_blame));  // a record names two, and six compete
}

TEST(Truth, MajorFaultsAgreeWithRusage) {
  SKIP_WITHOUT_PROBES();
  const std::string out = ScratchFile("faults");
  auto recorded = RecordCommand({Program("fault_count"), IsLong() ? "1500" : "200", out}, {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  ExpectWhole(*recorded);
  const auto rows = ReadNumbers(out);
  ASSERT_EQ(rows.size(), 1u);
  int64_t seen = 0, named = 0;
  for (const ThreadInterval& one : recorded->batch.intervals) {
    const std::string name(one.target.name.data());
    if (one.wait_class == WaitClass::kPageFault) {
      named += (out + ".scratch").substr(5).starts_with(name) && !name.empty();
      ++seen;
    }
    seen += one.short_count[static_cast<size_t>(WaitClass::kPageFault)];
  }
  std::printf("major faults: %ld by rusage, %ld waits seen, %ld with the file's name\n", long(rows[0][0]), long(seen),
              long(named));
  EXPECT_GE(seen, rows[0][0] * 97 / 100);
}

TEST(Truth, DroppedRecordsShowAsHoles) {
  SKIP_WITHOUT_PROBES();
  const std::string out = ScratchFile("drop");
  probe::KernelProbesOptions options;
  options.drop_per_mille = 100;
  auto recorded = RecordCommand({Program("known_waits"), "sleep", "200", out}, options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  unlink(out.c_str());
  uint64_t missing = 0;
  int64_t hole_ns = 0;
  for (const auto& [tid, intervals] : GroupByThread(*recorded)) {
    uint64_t next = 0;
    int64_t end = 0;
    for (const ThreadInterval* one : intervals) {
      missing += one->sequence - next;
      if (end && one->sequence != next) hole_ns += one->window_start_mono_ns - end;
      next = one->sequence + 1;
      end = one->wait_end_mono_ns;
    }
  }
  EXPECT_GT(recorded->losses.dropped_on_purpose, 0u);
  // A loss at a thread's very start or end has no neighbour to show it.
  EXPECT_GE(missing + 2, recorded->losses.dropped_on_purpose);
  EXPECT_NEAR(double(hole_ns), double(recorded->losses.dropped_on_purpose_ns),
              0.05 * double(recorded->losses.dropped_on_purpose_ns));
}

}  // namespace
}  // namespace tailspan::probe_test
