// The probes against independent truth: the programs' own clocks, the scheduler's books, rusage.
// Quick by default; TAILSPAN_LONG_TESTS=1 takes at least 1,000 waits of each class.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
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

#define SKIP_WITHOUT_PROBES()                                                          \
  do {                                                                                 \
    const probe::HostFacts facts = probe::ReadHostFacts();                             \
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
  std::printf(
      "%-10s %5d waits >= 1 ms: %.2f %% within 3 %% or 100 us, sum %+.3f %%; cause right for %.2f %% of blocked time\n",
      kind.name, waits, waits ? 100.0 * close / waits : 0.0,
      truth_ns ? 100.0 * double(seen_ns - truth_ns) / double(truth_ns) : 0.0,
      100.0 * double(right_ns) / double(blocked_ns));
  // Where the disk could not be slowed down, waits for it are as long as it makes them; their causes count all the
  // same.
  const bool is_disk =
      kind.cause == Cause::kDiskRead || kind.cause == Cause::kDiskWrite || kind.cause == Cause::kPageFault;
  if (!is_disk || std::filesystem::remove(out + ".slowed")) {
    EXPECT_GE(waits, (IsLong() ? kind.full : kind.quick) * 9 / 10);
  }
  EXPECT_GE(close, waits * 99 / 100);
  EXPECT_GE(double(right_ns), kind.cause_share * double(blocked_ns));
}

INSTANTIATE_TEST_SUITE_P(
    Probe, KnownWaits,
    ::testing::Values(Kind{"sleep", Cause::kSleep, 60, 1000, 0.99}, Kind{"pipe", Cause::kIpc, 60, 1000, 0.99},
                      Kind{"unix", Cause::kIpc, 60, 1000, 0.99}, Kind{"recv", Cause::kNetRecv, 60, 1000, 0.99},
                      Kind{"poll_read", Cause::kNetRecv, 60, 1000, 0.99},
                      Kind{"epoll", Cause::kNetRecv, 60, 1000, 0.99}, Kind{"send", Cause::kNetSend, 60, 1000, 0.99},
                      Kind{"poll_write", Cause::kNetSend, 60, 1000, 0.99}, Kind{"lock", Cause::kLock, 60, 1000, 0.99},
                      Kind{"child", Cause::kChildProcess, 60, 1000, 0.99},
                      Kind{"fsync", Cause::kDiskWrite, 12, 1050, 0.99}, Kind{"read", Cause::kDiskRead, 25, 1050, 0.99},
                      Kind{"fault", Cause::kPageFault, 25, 1050, 0.99}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(Truth, RunQueueTimeAgreesWithSchedstat) {
  SKIP_WITHOUT_PROBES();
  const std::string out = ScratchFile("busy");
  auto recorded = RecordCommand({Program("busy_threads"), "6", IsLong() ? "5000" : "700", out}, {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  ExpectWhole(*recorded);
  const ByThread threads = GroupByThread(*recorded);
  int64_t truth = 0, seen = 0, waits = 0;
  for (const auto& row : ReadNumbers(out)) {
    ASSERT_EQ(row.size(), 6u);
    truth += row[2] - row[3];
    for (const ThreadInterval* one : threads.at(static_cast<int32_t>(row[0]))) {
      if (one->wait_end_mono_ns <= row[4] || one->wait_end_mono_ns > row[5]) continue;
      if (one->wake_mono_ns) seen += one->wait_end_mono_ns - one->wake_mono_ns;
      seen += one->short_ns[static_cast<size_t>(WaitClass::kRunQueue)];
      ++waits;
    }
  }
  std::printf("run queue: %ld ms in %ld waits by schedstat, %+.2f %% seen\n", long(truth / 1'000'000), long(waits),
              100.0 * double(seen - truth) / double(truth));
  EXPECT_NEAR(double(seen), double(truth), 0.03 * double(truth));
}

// Two programs on one CPU, of which only one is followed: the other must be named.
TEST(Truth, RunQueueNamesWhoHadTheCpu) {
  SKIP_WITHOUT_PROBES();
  cpu_set_t before, one_cpu;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one_cpu);
  CPU_SET(0, &one_cpu);
  ASSERT_EQ(sched_setaffinity(0, sizeof one_cpu, &one_cpu), 0);
  const pid_t hog = fork();
  if (hog == 0) {
    while (base::MonoNowNs() != 0) {
    }
  }
  const std::string out = ScratchFile("hog");
  auto recorded = RecordCommand({Program("busy_threads"), "1", IsLong() ? "5000" : "1000", out}, {});
  // The hog's own book tells how much of the CPU others took meanwhile.
  std::ifstream book("/proc/" + std::to_string(hog) + "/schedstat");
  int64_t hog_ran_ns = 0;
  book >> hog_ran_ns;
  kill(hog, SIGKILL);
  waitpid(hog, nullptr, 0);
  sched_setaffinity(0, sizeof before, &before);
  unlink(out.c_str());
  ASSERT_TRUE(recorded) << recorded.error().message;
  int64_t waited = 0, by_hog = 0, by_others = 0, idle = 0, unnamed = 0;
  for (const ThreadInterval& one : recorded->batch.intervals) {
    EXPECT_NE(one.pid, hog);
    if (!one.wake_mono_ns || one.wait_end_mono_ns == one.wait_start_mono_ns) continue;
    int64_t named = 0;
    for (const auto& occupant : one.occupants) {
      named += occupant.ns;
      (occupant.pid == hog ? by_hog : by_others) += occupant.ns;
    }
    idle += one.occupant_idle_ns;
    unnamed += one.occupant_other_ns;
    waited += one.wait_end_mono_ns - one.wake_mono_ns;
    EXPECT_EQ(named + one.occupant_idle_ns + one.occupant_other_ns, one.wait_end_mono_ns - one.wake_mono_ns);
  }
  std::printf(
      "run queue: %ld ms waited: the hog %.1f %% (it ran %ld ms in all), others by name %.1f %%, idle %.1f %%, further "
      "ones "
      "%.1f %%\n",
      long(waited / 1'000'000), 100.0 * double(by_hog) / double(waited), long(hog_ran_ns / 1'000'000),
      100.0 * double(by_others) / double(waited), 100.0 * double(idle) / double(waited),
      100.0 * double(unnamed) / double(waited));
  EXPECT_LE(by_hog, hog_ran_ns);
  EXPECT_GT(by_hog, 0);
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

TEST(Truth, TimeStandsOnItsSpan) {
  SKIP_WITHOUT_PROBES();
  const std::string out = ScratchFile("spans");
  auto recorded = RecordCommand({Program("span_worker"), IsLong() ? "1000" : "100", out}, {});
  ASSERT_TRUE(recorded) << recorded.error().message;
  ASSERT_EQ(recorded->status, 0);
  ExpectWhole(*recorded);
  struct Sum {
    int64_t on_cpu_ns = 0, wait_ns = 0, outside_ns = 0;
  };
  std::map<uint64_t, Sum> sums;
  const auto rows = ReadNumbers(out);
  ASSERT_FALSE(rows.empty());
  for (const auto& row : rows) ASSERT_EQ(row.size(), 5u);
  for (const ThreadInterval& one : recorded->batch.intervals) {
    if (one.span_id == 0) continue;
    ASSERT_LE(one.span_id, rows.size());
    Sum& sum = sums[one.span_id];
    sum.on_cpu_ns += one.on_cpu_ns;
    sum.wait_ns += one.wait_end_mono_ns - one.wait_start_mono_ns;
    for (const int64_t ns : one.short_ns) sum.wait_ns += ns;
    const auto& row = rows[one.span_id - 1];
    const int64_t whole = one.wait_end_mono_ns - one.window_start_mono_ns;
    sum.outside_ns += whole - Overlap(row[1], row[4], one.window_start_mono_ns, one.wait_end_mono_ns);
  }
  int64_t truth_ns = 0, off_ns = 0, outside_ns = 0;
  for (const auto& row : rows) {
    const Sum& sum = sums[static_cast<uint64_t>(row[0])];
    // The span was the thread's for the first at least, for the second at most.
    const int64_t least = row[3] - row[2], most = row[4] - row[1], seen = sum.on_cpu_ns + sum.wait_ns;
    truth_ns += least;
    off_ns += std::max<int64_t>({0, least - seen, seen - most});
    outside_ns += sum.outside_ns;
  }
  std::printf("spans: %zu, %.1f ms; %.3f %% of it missing or too much, %.3f %% outside its span\n", rows.size(),
              double(truth_ns) / 1e6, 100.0 * double(off_ns) / double(truth_ns),
              100.0 * double(outside_ns) / double(truth_ns));
  EXPECT_LE(double(off_ns), 0.01 * double(truth_ns));
  EXPECT_LE(double(outside_ns), 0.01 * double(truth_ns));
}

TEST(Truth, DroppedRecordsShowAsHoles) {
  SKIP_WITHOUT_PROBES();
  const std::string out = ScratchFile("drop");
  probe::KernelProbesOptions options;
  options.drop_per_mille = 100;
  auto recorded = RecordCommand({Program("known_waits"), "sleep", "200", out}, options);
  ASSERT_TRUE(recorded) << recorded.error().message;
  unlink(out.c_str());
  std::map<int32_t, int64_t> exit_mono_ns;
  for (const auto& event : recorded->batch.process_events) {
    if (event.kind == model::ProcessEventKind::kExit || event.kind == model::ProcessEventKind::kThreadExit)
      exit_mono_ns[event.tid] = event.at_mono_ns;
  }
  uint64_t missing = 0;
  int64_t hole_ns = 0;
  bool head_lost = false;  // then the time before the first record has no neighbour to show it
  for (const auto& [tid, intervals] : GroupByThread(*recorded)) {
    head_lost |= intervals[0]->sequence != 0;
    uint64_t next = 0;
    int64_t end = 0;
    for (const ThreadInterval* one : intervals) {
      missing += one->sequence - next;
      if (end && one->sequence != next) hole_ns += one->window_start_mono_ns - end;
      next = one->sequence + 1;
      end = one->wait_end_mono_ns;
    }
    // The exit's own flush ends a little before the exit's record.
    if (exit_mono_ns.contains(tid)) hole_ns += std::max<int64_t>(0, exit_mono_ns[tid] - end);
  }
  const auto dropped_ns = static_cast<int64_t>(recorded->losses.dropped_on_purpose_ns);
  std::printf("dropped on purpose: %lu records, %.2f ms; holes of %.2f ms seen%s\n",
              static_cast<unsigned long>(recorded->losses.dropped_on_purpose), double(dropped_ns) / 1e6,
              double(hole_ns) / 1e6, head_lost ? ", but for the lost first record" : "");
  EXPECT_GT(recorded->losses.dropped_on_purpose, 0u);
  EXPECT_GE(missing + 1, recorded->losses.dropped_on_purpose);  // the last record's number has no follower
  EXPECT_LE(hole_ns, dropped_ns + 1'000'000);
  if (!head_lost) {
    EXPECT_GE(hole_ns, dropped_ns - 1'000'000);
  }
}

}  // namespace
}  // namespace tailspan::probe_test
