/* A shared library for gil_truth.py: threads that hold the GIL for known times, and a log of when they did.
 * Loaded by ctypes.PyDLL, so every call starts with the GIL held. Needs no Python headers. */
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void* PyEval_SaveThread(void);
void PyEval_RestoreThread(void* state);

enum { kHoldsMax = 200000 };

static struct {
  int tid;
  int64_t asked_mono_ns, got_mono_ns, released_mono_ns;
} holds[kHoldsMax];
static int hold_count;

static int64_t Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Holds the GIL for 0.5 to 1.5 times hold_us, lets go, pauses, asks again; count times. */
void hold_gil(int count, int hold_us, int pause_us) {
  const int tid = (int)syscall(SYS_gettid);
  unsigned seed = (unsigned)tid;
  int64_t asked = 0, got = Now();
  for (int i = 0; i < count; ++i) {
    seed = seed * 1103515245u + 12345u;
    const int64_t until = got + hold_us * 500ll + (int64_t)(seed >> 8) % (hold_us * 1000ll);
    while (Now() < until) {
    }
    const int at = __sync_fetch_and_add(&hold_count, 1);
    if (at >= kHoldsMax) return;
    holds[at].tid = tid;
    holds[at].asked_mono_ns = asked;
    holds[at].got_mono_ns = got;
    holds[at].released_mono_ns = Now();
    void* state = PyEval_SaveThread();
    struct timespec pause = {pause_us / 1000000, pause_us % 1000000 * 1000l};
    nanosleep(&pause, NULL);
    asked = Now();
    PyEval_RestoreThread(state);
    got = Now();
  }
}

int write_holds(const char* path) {
  FILE* file = fopen(path, "w");
  if (!file) return 1;
  for (int i = 0; i < hold_count && i < kHoldsMax; ++i)
    fprintf(file, "%d %lld %lld %lld\n", holds[i].tid, (long long)holds[i].asked_mono_ns,
            (long long)holds[i].got_mono_ns, (long long)holds[i].released_mono_ns);
  return fclose(file);
}
