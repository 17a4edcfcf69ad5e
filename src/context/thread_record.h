/* The record by which a thread says which span it works for: OTEP 4947, "thread context". C and C++; no calls.
 *
 * A process exports the thread-local pointer `otel_thread_ctx_v1` (initial-exec: a fixed offset from the thread
 * pointer). It points to this thread's record, of which there is one per thread, in thread-local memory.
 *
 * Rules for a reader (it may read only while the thread is stopped, or from within the thread's own context switch):
 *  - pointer null: this thread never had a span.
 *  - valid != 1: the thread is between two spans; take what was read last.
 *  - span_id all zero: no span since changed_mono_ns. The pointer stays set, so that the end of a span is dated too.
 *  - else: span_id since changed_mono_ns, which is the moment at which THIS thread turned to it, in CLOCK_MONOTONIC;
 *    a thread that comes back to a span after another has a new moment.
 * The attributes always stand in this order and with these lengths, so fixed offsets may be used once attrs_size, the
 * two keys and the two lengths have been checked. A record by another writer has other attributes: walk them.
 */
#ifndef TAILSPAN_CONTEXT_THREAD_RECORD_H_
#define TAILSPAN_CONTEXT_THREAD_RECORD_H_

#include <stddef.h>
#include <stdint.h>

#define TAILSPAN_KEY_CHANGED 0 /* "tailspan.changed_mono_ns" in the process context's key table */
#define TAILSPAN_KEY_UUID 1    /* "tailspan.span_uuid": a LangSmith run's whole id, zero for other spans */
#define TAILSPAN_KEY_CHANGED_NAME "tailspan.changed_mono_ns"
#define TAILSPAN_KEY_UUID_NAME "tailspan.span_uuid"

struct TailspanThreadRecord {
  uint8_t trace_id[16];
  uint8_t span_id[8];
  uint8_t valid;
  uint8_t flags;              /* bit 0: sampled */
  uint16_t attrs_size;        /* of what follows */
  uint8_t changed_key;        /* TAILSPAN_KEY_CHANGED */
  uint8_t changed_len;        /* 8 */
  uint8_t changed_mono_ns[8]; /* host order, not aligned */
  uint8_t uuid_key;           /* TAILSPAN_KEY_UUID */
  uint8_t uuid_len;           /* 16 */
  uint8_t uuid[16];
};

#define TAILSPAN_RECORD_ATTRS_SIZE 28

#ifdef __cplusplus
#  define TAILSPAN_LAYOUT(condition) static_assert(condition, #  condition)
#else
#  define TAILSPAN_LAYOUT(condition) _Static_assert(condition, #  condition)
#endif
TAILSPAN_LAYOUT(sizeof(struct TailspanThreadRecord) == 56);
TAILSPAN_LAYOUT(offsetof(struct TailspanThreadRecord, span_id) == 16);
TAILSPAN_LAYOUT(offsetof(struct TailspanThreadRecord, valid) == 24);
TAILSPAN_LAYOUT(offsetof(struct TailspanThreadRecord, attrs_size) == 26);
TAILSPAN_LAYOUT(offsetof(struct TailspanThreadRecord, changed_key) == 28);
TAILSPAN_LAYOUT(offsetof(struct TailspanThreadRecord, changed_mono_ns) == 30);
TAILSPAN_LAYOUT(offsetof(struct TailspanThreadRecord, uuid_key) == 38);
TAILSPAN_LAYOUT(offsetof(struct TailspanThreadRecord, uuid) == 40);

#endif /* TAILSPAN_CONTEXT_THREAD_RECORD_H_ */
