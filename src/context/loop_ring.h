/* Layout of the loop ring: what a process's event loops, executors and current spans did. C and C++; no calls.
 *
 * One memfd per process ("tailspan_ring", sealed against shrinking, growing and new writers). Layout:
 *   header (one page) | site table | slot table | records of the loop slots | records of the plain slots
 * A slot belongs to one thread at a time, which alone writes it. Record i of a slot stands at [i % capacity] and has
 * seq = 2i + 2 when whole, 2i + 1 while being written; `head` is the number of records written so far. Readers copy
 * records below `head`, then read `head` again: record i was stable if i + capacity > that head.
 * Threads start in a plain slot and move to a loop slot (more records) with the first step of an event loop.
 *
 * Ids. A step's id is (slot + 1) << 48 | forks & 255 << 40 | number, numbers being consecutive in a slot: a hole is a
 * loss. Outside any step a thread has the pseudo step TAILSPAN_PLAIN_STEP | tid, also used as a waker.
 * Spans are the 8 bytes of the span id, as they stand in memory (wire order).
 *
 * A step's record is written at its end, so records of one slot are in order of their ends.
 */
#ifndef TAILSPAN_CONTEXT_LOOP_RING_H_
#define TAILSPAN_CONTEXT_LOOP_RING_H_

#include "context/thread_record.h"

#define TAILSPAN_RING_NAME "tailspan_ring"
#define TAILSPAN_RING_MAGIC "TSLOOP1"
#define TAILSPAN_RING_VERSION 2u
#define TAILSPAN_LOOP_SLOTS 16u
#define TAILSPAN_LOOP_RECORDS 16384u
#define TAILSPAN_PLAIN_SLOTS 256u
#define TAILSPAN_PLAIN_RECORDS 1024u
#define TAILSPAN_SLOTS (TAILSPAN_LOOP_SLOTS + TAILSPAN_PLAIN_SLOTS)
#define TAILSPAN_SITES 1024u
#define TAILSPAN_SITE_BYTES 96u
#define TAILSPAN_PLAIN_STEP (0xFFFFull << 48)

enum TailspanRecordType {
  TAILSPAN_STEP = 1,
  TAILSPAN_SPAN = 2,
  TAILSPAN_POLL = 3,
  TAILSPAN_GC = 4,
  TAILSPAN_SOCKET = 5,
};

enum TailspanStepKind {
  TAILSPAN_SOON = 1,
  TAILSPAN_IO_READ = 2,
  TAILSPAN_IO_WRITE = 3,
  TAILSPAN_TIMER = 4,
  TAILSPAN_EXECUTOR = 5,
};

enum TailspanStepFlag {
  TAILSPAN_FIRST = 1,       /* the first step of its task: a new carrier, whatever its address */
  TAILSPAN_READY_BOUND = 2, /* ready_ns is the latest it can be: the last poll's return (signal handlers) */
  TAILSPAN_EAGER = 4,       /* the part of a task that ran inside its creation; nested in the creator's step */
};

enum TailspanSpanKind { TAILSPAN_ENTER = 1, TAILSPAN_LEAVE = 2, TAILSPAN_RESTORE = 3 };

/* STEP: a run of a handle or job. It also stands for two changes of the thread's span: to `span` at start_ns and to
 *   `outer_span` at end_ns. ready_ns: when it became ready (call_soon: its making; I/O: the poll's return; timer: when,
 *   or the return of the poll the loop was in then; executor: submission). waker: the step that made, armed, registered
 *   or submitted it, and the span current in it then. fd: the descriptor for I/O, else -1.
 * SPAN: at start_ns the thread's span became `span`, from `outer_span`, within step `step`.
 * POLL: entered at start_ns, epoll_wait returned at ready_ns, GIL held again at end_ns; fd: events returned.
 * GC: [start_ns, end_ns) within step `step` and span `span`; fd: generation.
 * SOCKET: has a layout of its own, below. */
struct TailspanRingRecord {
  uint64_t seq;
  uint64_t ready_ns, start_ns, end_ns;
  uint64_t step;
  uint64_t span;
  uint64_t waker_step, waker_span;
  uint64_t task; /* address of the task while it lives; 0 the handle is no task's */
  uint64_t outer_span;
  uint8_t type, kind, flags, pad;
  uint16_t site, pad2;
  int32_t fd;
  uint32_t tid;
};

/* SOCKET: since start_ns, when it was registered with a selector, descriptor `fd` is this one; written at end_ns. A
 * second record of one registration tells what could not be known at the first: the peer. IP versions are 4, 6, or 0
 * for no address: neither has one when it is no IP socket, the remote one when there is no peer (yet). Addresses in
 * network order, the first four bytes for version 4; ports in host order. */
struct TailspanRingSocket {
  uint64_t seq;
  uint64_t inode; /* 0 no socket */
  uint64_t start_ns, end_ns;
  uint8_t local[16], remote[16];
  uint64_t pad[2];
  uint8_t type, local_version, remote_version, pad2;
  uint16_t local_port, remote_port;
  int32_t fd;
  uint32_t tid;
};

struct TailspanRingSlot {
  uint32_t tid;
  uint32_t state; /* 0 free, 1 in use, 2 its thread ended */
  uint64_t head;
  uint64_t steps;                      /* numbers given out */
  uint64_t step, start_ns, span, task; /* what runs now; step 0 or plain: nothing */
  uint64_t pad;
};

struct TailspanRingHeader {
  char magic[8];
  uint32_t version, record_bytes;
  uint32_t loop_slots, loop_records, plain_slots, plain_records;
  uint32_t sites, site_bytes;
  uint32_t pid, forks;
  uint32_t sites_used;   /* site 0 is "unknown" and never written */
  uint32_t sites_lost;   /* call sites that found the table full */
  uint32_t threads_lost; /* threads that found no slot: their records are lost */
  uint32_t pad[1009];
};

#define TAILSPAN_RING_SITES_AT 4096u
#define TAILSPAN_RING_SLOTS_AT (TAILSPAN_RING_SITES_AT + TAILSPAN_SITES * TAILSPAN_SITE_BYTES)
#define TAILSPAN_RING_RECORDS_AT (TAILSPAN_RING_SLOTS_AT + 20480u)
#define TAILSPAN_RING_RECORD_BYTES 96u
#define TAILSPAN_RING_BYTES                                                                              \
  (TAILSPAN_RING_RECORDS_AT + TAILSPAN_RING_RECORD_BYTES * TAILSPAN_LOOP_SLOTS * TAILSPAN_LOOP_RECORDS + \
   TAILSPAN_RING_RECORD_BYTES * TAILSPAN_PLAIN_SLOTS * TAILSPAN_PLAIN_RECORDS)

TAILSPAN_LAYOUT(sizeof(struct TailspanRingRecord) == TAILSPAN_RING_RECORD_BYTES);
TAILSPAN_LAYOUT(offsetof(struct TailspanRingRecord, task) == 64);
TAILSPAN_LAYOUT(offsetof(struct TailspanRingRecord, type) == 80);
TAILSPAN_LAYOUT(offsetof(struct TailspanRingRecord, tid) == 92);
TAILSPAN_LAYOUT(sizeof(struct TailspanRingSocket) == TAILSPAN_RING_RECORD_BYTES);
TAILSPAN_LAYOUT(offsetof(struct TailspanRingSocket, end_ns) == offsetof(struct TailspanRingRecord, end_ns));
TAILSPAN_LAYOUT(offsetof(struct TailspanRingSocket, type) == offsetof(struct TailspanRingRecord, type));
TAILSPAN_LAYOUT(offsetof(struct TailspanRingSocket, fd) == offsetof(struct TailspanRingRecord, fd));
TAILSPAN_LAYOUT(offsetof(struct TailspanRingSocket, tid) == offsetof(struct TailspanRingRecord, tid));
TAILSPAN_LAYOUT(sizeof(struct TailspanRingSlot) == 64);
TAILSPAN_LAYOUT(sizeof(struct TailspanRingHeader) == TAILSPAN_RING_SITES_AT);
TAILSPAN_LAYOUT(TAILSPAN_SLOTS * sizeof(struct TailspanRingSlot) <= 20480u);
TAILSPAN_LAYOUT(TAILSPAN_RING_RECORDS_AT % 4096u == 0);

static inline uint32_t tailspan_slot_capacity(uint32_t slot) {
  return slot < TAILSPAN_LOOP_SLOTS ? TAILSPAN_LOOP_RECORDS : TAILSPAN_PLAIN_RECORDS;
}

/* Byte offset of a slot's first record. */
static inline uint64_t tailspan_slot_records_at(uint32_t slot) {
  uint64_t records = slot < TAILSPAN_LOOP_SLOTS ? (uint64_t)slot * TAILSPAN_LOOP_RECORDS
                                                : (uint64_t)TAILSPAN_LOOP_SLOTS * TAILSPAN_LOOP_RECORDS +
                                                      (uint64_t)(slot - TAILSPAN_LOOP_SLOTS) * TAILSPAN_PLAIN_RECORDS;
  return TAILSPAN_RING_RECORDS_AT + records * TAILSPAN_RING_RECORD_BYTES;
}

#endif /* TAILSPAN_CONTEXT_LOOP_RING_H_ */
