// What the probes cost a thread that does nothing but switch: an echo between two threads over a socket pair, in turns
// with and without probes.
//
// Expected: well under 1 us for each switch. The figure is the difference of the medians, in CPU time of both threads,
// by the process's own CPU clock; the programs run inside the switches, and so in that time.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "probe/kernel_probes.h"

namespace {

int64_t NowNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

struct Round {
  double cpu_ns = 0, wall_ns = 0;  // for each switch
};

// Each trip is two messages and so two switches in and two out.
[[noreturn]] void Echo(int trips, int go, int out) {
  char byte = 0;
  if (read(go, &byte, 1) != 1) _exit(1);
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) _exit(1);
  const int64_t cpu = NowNs(CLOCK_PROCESS_CPUTIME_ID), wall = NowNs(CLOCK_MONOTONIC);
  std::thread other([&] {
    char one;
    for (int i = 0; i < trips; ++i)
      if (read(fds[1], &one, 1) != 1 || write(fds[1], &one, 1) != 1) _exit(1);
  });
  for (int i = 0; i < trips; ++i)
    if (write(fds[0], &byte, 1) != 1 || read(fds[0], &byte, 1) != 1) _exit(1);
  other.join();
  const Round round{double(NowNs(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (2.0 * trips),
                    double(NowNs(CLOCK_MONOTONIC) - wall) / (2.0 * trips)};
  _exit(write(out, &round, sizeof round) == sizeof round ? 0 : 1);
}

Round Run(int trips, tailspan::probe::KernelProbes* probes) {
  int go[2], out[2];
  if (pipe(go) != 0 || pipe(out) != 0) std::exit(1);
  const pid_t child = fork();
  if (child == 0) Echo(trips, go[0], out[1]);
  close(go[0]);
  close(out[1]);
  if (probes && !probes->FollowProcess(child)) std::exit(1);
  if (write(go[1], "g", 1) != 1) std::exit(1);
  int status = 0;
  tailspan::model::RecordBatch batch;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (probes) probes->Drain(&batch);
    batch = {};
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  Round round;
  if (read(out[0], &round, sizeof round) != sizeof round) std::exit(1);
  close(go[1]);
  close(out[0]);
  return round;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 11;
  const int trips = count > 2 ? std::atoi(arguments[2]) : 20'000;
  std::vector<double> cpu[3], wall[3];
  uint64_t run_ns = 0, runs = 0;
  const char* names[] = {"none", "two hot programs", "all signals"};
  for (int round = 0; round < rounds; ++round) {
    for (int arm = 0; arm < 3; ++arm) {
      tailspan::probe::KernelProbesOptions options;
      if (arm == 1) {
        options.sample_hz = 0;
        options.signals_off = {"interrupts",  "timer_interrupts", "page_fault_file", "page_fault_address",
                               "connections", "retransmit",       "socket_ready",    "block_requests"};
      }
      std::unique_ptr<tailspan::probe::KernelProbes> probes;
      if (arm > 0) {
        auto opened = tailspan::probe::KernelProbes::Open(options);
        if (!opened) {
          fmt::print(stderr, "{}\n", opened.error().message);
          return 1;
        }
        probes = std::move(*opened);
      }
      const Round one = Run(trips, probes.get());
      cpu[arm].push_back(one.cpu_ns);
      wall[arm].push_back(one.wall_ns);
      if (arm == 1) probes->RunTime(&run_ns, &runs);
    }
  }
  for (int arm = 0; arm < 3; ++arm) {
    std::vector<double> added;
    for (int round = 0; round < rounds; ++round) added.push_back(cpu[arm][round] - cpu[0][round]);
    fmt::print("{:18} CPU {:6.0f} ns a switch ({:+.0f} paired median), wall {:6.0f} ns\n", names[arm], Median(cpu[arm]),
               Median(added), Median(wall[arm]));
  }
  if (runs)
    fmt::print("hot programs: {:.0f} ns a run, {} runs (kernel.bpf_stats_enabled)\n", double(run_ns) / double(runs),
               runs);
  return 0;
}
