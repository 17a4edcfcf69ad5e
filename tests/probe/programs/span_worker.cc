// A thread that works for one span after another, with lengths that no two spans share: span_worker COUNT OUT.
// They are a millisecond and more: reading the clock and setting the context take microseconds of their own.
// Writes a line "span set_from_mono_ns set_to_mono_ns clear_from_mono_ns clear_to_mono_ns" to OUT: the span became the
// thread's within the first two, and ceased to be within the last two. On a busy machine others may run in between.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "context/tailspan_context.h"

namespace {

int64_t NowNs(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  FILE* out = fopen(argv[2], "w");
  if (!out) return 1;
  timespec settle{0, 400'000'000};
  nanosleep(&settle, nullptr);  // until the context has been found from outside
  const int count = atoi(argv[1]);
  uint8_t trace[16] = {1, 2, 3}, span[8] = {0};
  for (int i = 1; i <= count; ++i) {
    span[6] = static_cast<uint8_t>(i >> 8);
    span[7] = static_cast<uint8_t>(i);
    const int64_t set_from = NowNs();
    tailspan_context_set(trace, span, nullptr);
    const int64_t set_to = NowNs();
    for (int part = 0; part < 2; ++part) {
      const int64_t until = NowNs(CLOCK_THREAD_CPUTIME_ID) + 100'000 + i * 2'000;
      while (NowNs(CLOCK_THREAD_CPUTIME_ID) < until) {
      }
      timespec pause{0, part == 0 ? 5'000 : 400'000 + i * 2'500};  // one below the threshold, one above
      nanosleep(&pause, nullptr);
    }
    const int64_t clear_from = NowNs();
    tailspan_context_clear();
    const int64_t clear_to = NowNs();
    fprintf(out, "%d %ld %ld %ld %ld\n", i, set_from, set_to, clear_from, clear_to);
  }
  fclose(out);
  return 0;
}
