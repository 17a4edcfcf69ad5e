/* Inside of the library, for adapters that run on every step of an event loop and must not pay for a call.
 *
 * tailspan_thread is the calling thread's own state; only that thread touches it. A "serial" names what is published,
 * so that publishing the same span again costs a comparison: 0 is no span, TAILSPAN_SERIAL_FOREIGN one that was set
 * through the C API, adapters give their own in between.
 */
#ifndef TAILSPAN_CONTEXT_THREAD_STATE_H_
#define TAILSPAN_CONTEXT_THREAD_STATE_H_

#include <string.h>
#include <time.h>

#include "context/loop_ring.h"
#include "context/tailspan_context.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TAILSPAN_SERIAL_FOREIGN UINT64_MAX
#define TAILSPAN_INITIAL_EXEC __attribute__((tls_model("initial-exec")))

struct TailspanThreadState {
  struct TailspanThreadRecord record;
  uint64_t serial;
  uint64_t span;                 /* record.span_id as a number; 0 none */
  struct TailspanRingSlot* slot; /* null until tailspan_attach */
  struct TailspanRingRecord* records;
  uint64_t record_mask;
  uint64_t step_base;  /* the part of a step id that stands above its number */
  uint64_t step, task; /* running now; the plain pseudo step outside */
  uint64_t plain_step;
  uint64_t poll_enter_ns, poll_return_ns;
  uint32_t tid;
  uint32_t in_loop_slot; /* tried to get one */
};

extern TAILSPAN_EXPORT __thread void* otel_thread_ctx_v1 TAILSPAN_INITIAL_EXEC;
extern TAILSPAN_EXPORT __thread struct TailspanThreadState tailspan_thread TAILSPAN_INITIAL_EXEC;
extern TAILSPAN_EXPORT uint32_t tailspan_forks; /* how often this process is a forked child of the first */

TAILSPAN_EXPORT void tailspan_attach(struct TailspanThreadState* state);
TAILSPAN_EXPORT void tailspan_enter_loop_slot(struct TailspanThreadState* state);
/* Index of a call site's name, entered if new; 0 when the table is full. Callers serialise (the GIL does). */
TAILSPAN_EXPORT uint16_t tailspan_site(const char* name);

static inline uint64_t tailspan_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline struct TailspanThreadState* tailspan_state(void) {
  struct TailspanThreadState* state = &tailspan_thread;
  if (__builtin_expect(state->slot == NULL, 0)) tailspan_attach(state);
  return state;
}

static inline uint64_t tailspan_span_number(const uint8_t span_id[8]) {
  uint64_t span;
  memcpy(&span, span_id, sizeof span);
  return span;
}

/* Writes the thread's record. `source` holds ids and attributes; its valid and changed fields are not used. */
static inline void tailspan_write_record(struct TailspanThreadState* state, const struct TailspanThreadRecord* source,
                                         uint64_t serial, uint64_t now_ns) {
  struct TailspanThreadRecord* record = &state->record;
  *(volatile uint8_t*)&record->valid = 0;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  memcpy(record->trace_id, source->trace_id, 24);
  record->flags = source->flags;
  record->attrs_size = TAILSPAN_RECORD_ATTRS_SIZE;
  record->changed_key = TAILSPAN_KEY_CHANGED;
  record->changed_len = 8;
  memcpy(record->changed_mono_ns, &now_ns, 8);
  record->uuid_key = TAILSPAN_KEY_UUID;
  record->uuid_len = 16;
  memcpy(record->uuid, source->uuid, 16);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  *(volatile uint8_t*)&record->valid = 1;
  otel_thread_ctx_v1 = record;
  state->serial = serial;
  state->span = tailspan_span_number(source->span_id);
}

/* Takes the next record of this thread; fill it, then tailspan_finish it. */
static inline struct TailspanRingRecord* tailspan_begin(struct TailspanThreadState* state, uint8_t type, uint8_t kind) {
  uint64_t head = state->slot->head;
  struct TailspanRingRecord* record = &state->records[head & state->record_mask];
  __atomic_store_n(&record->seq, 2 * head + 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  record->type = type;
  record->kind = kind;
  record->flags = 0;
  record->site = 0;
  record->fd = -1;
  record->tid = state->tid;
  return record;
}

static inline void tailspan_finish(struct TailspanThreadState* state, struct TailspanRingRecord* record) {
  uint64_t head = state->slot->head;
  __atomic_store_n(&record->seq, 2 * head + 2, __ATOMIC_RELEASE);
  __atomic_store_n(&state->slot->head, head + 1, __ATOMIC_RELEASE);
}

static inline void tailspan_emit_span(struct TailspanThreadState* state, uint8_t kind, uint64_t previous,
                                      uint64_t now_ns) {
  struct TailspanRingRecord* record = tailspan_begin(state, TAILSPAN_SPAN, kind);
  record->ready_ns = record->start_ns = record->end_ns = now_ns;
  record->step = state->step;
  record->span = state->span;
  record->waker_step = record->waker_span = 0;
  record->task = state->task;
  record->outer_span = previous;
  tailspan_finish(state, record);
  state->slot->span = state->span;
}

static inline uint64_t tailspan_next_step(struct TailspanThreadState* state) {
  return state->step_base | ++state->slot->steps;
}

#ifdef __cplusplus
}
#endif

#endif /* TAILSPAN_CONTEXT_THREAD_STATE_H_ */
