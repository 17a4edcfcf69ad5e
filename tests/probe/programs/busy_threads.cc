// More runnable threads than CPUs: busy_threads THREADS MS OUT. Each works and pauses in turn, then writes a line
// "tid run_ns run_delay_ns run_delay_at_start from_mono_ns to_mono_ns" from the scheduler's own books to OUT.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

namespace {

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

void ReadBook(long tid, long* run_ns, long* delay_ns) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", tid);
  FILE* file = fopen(path, "r");
  if (!file || fscanf(file, "%ld %ld", run_ns, delay_ns) != 2) exit(1);
  fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int count = atoi(argv[1]);
  const int64_t length_ns = atoll(argv[2]) * 1'000'000;
  FILE* out = fopen(argv[3], "w");
  if (!out) return 1;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const long tid = syscall(SYS_gettid);
      long run0, delay0, run1, delay1;
      ReadBook(tid, &run0, &delay0);
      const int64_t from = NowNs();
      while (NowNs() - from < length_ns) {
        const int64_t until = NowNs() + 700'000 + i * 100'000;
        while (NowNs() < until) {
        }
        timespec pause{0, 300'000};
        nanosleep(&pause, nullptr);
      }
      const int64_t to = NowNs();
      ReadBook(tid, &run1, &delay1);
      std::lock_guard lock(mutex);
      fprintf(out, "%ld %ld %ld %ld %ld %ld\n", tid, run1, delay1, delay0, from, to);
    });
  }
  for (std::thread& thread : threads) thread.join();
  fclose(out);
  return 0;
}
