/* The calling thread's record, and the library's life: load, fork, unload never. */
#define _GNU_SOURCE
#include <pthread.h>

#include "context/internal.h"
#include "context/thread_state.h"

__thread void* otel_thread_ctx_v1 TAILSPAN_INITIAL_EXEC;
__thread struct TailspanThreadState tailspan_thread TAILSPAN_INITIAL_EXEC;
uint32_t tailspan_forks;

static const char* problem;
static const struct TailspanThreadRecord no_span;

static int64_t TlsOffset(void) { return (char*)&otel_thread_ctx_v1 - (char*)__builtin_thread_pointer(); }

static void Publish(void) {
  const char* why = NULL;
  problem = NULL;
  if (!tailspan_ring_open(&why)) problem = why;
  if (!tailspan_process_context_publish(TlsOffset(), tailspan_ring_fd(), &why)) problem = why;
}

/* Only the thread that forked lives on in the child. Its record is cleared, not its pointer's past: the child is
 * another thread, which never had a span. */
static void AfterForkInChild(void) {
  otel_thread_ctx_v1 = NULL;
  memset(&tailspan_thread, 0, sizeof tailspan_thread);
  ++tailspan_forks;
  tailspan_ring_drop();
  tailspan_process_context_forget();
  Publish();
}

__attribute__((constructor)) static void Load(void) {
  Publish();
  pthread_atfork(NULL, NULL, AfterForkInChild);
}

const char* tailspan_context_problem(void) { return problem; }

void tailspan_context_set(const uint8_t trace_id[16], const uint8_t span_id[8], const uint8_t* uuid) {
  struct TailspanThreadState* state = tailspan_state();
  struct TailspanThreadRecord source = {.flags = 1};
  memcpy(source.trace_id, trace_id, sizeof source.trace_id);
  memcpy(source.span_id, span_id, sizeof source.span_id);
  if (uuid) memcpy(source.uuid, uuid, sizeof source.uuid);
  uint64_t now_ns = tailspan_now_ns(), previous = state->span;
  uint64_t span = tailspan_span_number(span_id);
  tailspan_write_record(state, &source, span ? TAILSPAN_SERIAL_FOREIGN : 0, now_ns);
  tailspan_emit_span(state, span ? TAILSPAN_ENTER : TAILSPAN_LEAVE, previous, now_ns);
}

void tailspan_context_clear(void) {
  struct TailspanThreadState* state = tailspan_state();
  if (!state->serial) return;
  uint64_t now_ns = tailspan_now_ns(), previous = state->span;
  tailspan_write_record(state, &no_span, 0, now_ns);
  tailspan_emit_span(state, TAILSPAN_LEAVE, previous, now_ns);
}

int tailspan_context_get(uint8_t trace_id[16], uint8_t span_id[8], uint8_t uuid[16]) {
  const struct TailspanThreadState* state = &tailspan_thread;
  if (!state->span) return 0;
  memcpy(trace_id, state->record.trace_id, sizeof state->record.trace_id);
  memcpy(span_id, state->record.span_id, sizeof state->record.span_id);
  memcpy(uuid, state->record.uuid, sizeof state->record.uuid);
  return 1;
}
