/* The ring's memory and who owns which slot of it. */
#define _GNU_SOURCE
#include "context/loop_ring.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "context/internal.h"
#include "context/thread_state.h"

#ifndef F_SEAL_FUTURE_WRITE
#  define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { kSlotFree = 0, kSlotUsed = 1, kSlotEnded = 2 };

static uint8_t* ring;
static int ring_fd = -1;
static ino_t ring_inode;
static pthread_key_t thread_end;
static int have_thread_end;

/* Where threads write for which there is no slot. Several may at once: nothing reads it. */
static struct TailspanRingSlot nowhere_slot;
static struct TailspanRingRecord nowhere_record;

static struct TailspanRingHeader* Header(void) { return (struct TailspanRingHeader*)ring; }
static struct TailspanRingSlot* Slots(void) { return (struct TailspanRingSlot*)(ring + TAILSPAN_RING_SLOTS_AT); }

static void FreeSlot(struct TailspanRingSlot* slot) {
  if (slot == &nowhere_slot) return;
  slot->step = slot->start_ns = slot->span = slot->task = 0;
  __atomic_store_n(&slot->state, kSlotEnded, __ATOMIC_RELEASE);
}

/* The key's value is a generation, not a slot: after a fork the old one must not free a slot of the new ring. */
static void ThreadEnds(void* generation) {
  struct TailspanThreadState* state = &tailspan_thread;
  if ((uintptr_t)generation != tailspan_forks + 1u || !state->slot) return;
  FreeSlot(state->slot);
  state->slot = NULL;
  state->in_loop_slot = 0;
}

int tailspan_ring_open(const char** problem) {
  const char* off = getenv("TAILSPAN_RING");
  if (off && !strcmp(off, "0")) return *problem = "the loop ring is off by TAILSPAN_RING=0", 0;
  if (!have_thread_end && pthread_key_create(&thread_end, ThreadEnds)) {
    return *problem = "no pthread key left for the loop ring", 0;
  }
  have_thread_end = 1;
  struct rlimit limit;
  if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < TAILSPAN_RING_BYTES) {
    return *problem = "the file size limit (ulimit -f) is below the loop ring's size", 0; /* else: SIGXFSZ */
  }
  int fd = memfd_create(TAILSPAN_RING_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return *problem = "memfd_create failed for the loop ring", 0;
  void* memory = MAP_FAILED;
  if (!ftruncate(fd, TAILSPAN_RING_BYTES)) {
    memory = mmap(NULL, TAILSPAN_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  }
  struct stat status;
  if (memory == MAP_FAILED || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) || fstat(fd, &status)) {
    if (memory != MAP_FAILED) munmap(memory, TAILSPAN_RING_BYTES);
    close(fd);
    return *problem = "the loop ring could not be mapped", 0;
  }
  fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE); /* since Linux 5.1; a convenience, readers do not count on it */
  fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
  madvise(memory, TAILSPAN_RING_BYTES, MADV_DONTFORK);
  ring = memory;
  ring_fd = fd;
  ring_inode = status.st_ino;
  struct TailspanRingHeader* header = Header();
  header->version = TAILSPAN_RING_VERSION;
  header->record_bytes = TAILSPAN_RING_RECORD_BYTES;
  header->loop_slots = TAILSPAN_LOOP_SLOTS;
  header->loop_records = TAILSPAN_LOOP_RECORDS;
  header->plain_slots = TAILSPAN_PLAIN_SLOTS;
  header->plain_records = TAILSPAN_PLAIN_RECORDS;
  header->sites = TAILSPAN_SITES;
  header->site_bytes = TAILSPAN_SITE_BYTES;
  header->pid = (uint32_t)getpid();
  header->forks = tailspan_forks;
  header->sites_used = 1;
  __atomic_thread_fence(__ATOMIC_RELEASE);
  memcpy(header->magic, TAILSPAN_RING_MAGIC, sizeof header->magic);
  return 1;
}

void tailspan_ring_drop(void) {
  struct stat status;
  /* The program may have closed our descriptor and got its number for another file: close only what is ours. */
  if (ring_fd >= 0 && !fstat(ring_fd, &status) && status.st_ino == ring_inode) close(ring_fd);
  ring = NULL; /* not mapped in the child: MADV_DONTFORK */
  ring_fd = -1;
}

int tailspan_ring_fd(void) { return ring_fd; }

static int TakeSlot(struct TailspanThreadState* state, uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i) {
    struct TailspanRingSlot* slot = &Slots()[i];
    uint32_t was = __atomic_load_n(&slot->state, __ATOMIC_RELAXED);
    if (was == kSlotUsed ||
        !__atomic_compare_exchange_n(&slot->state, &was, kSlotUsed, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      continue;
    }
    slot->tid = state->tid;
    slot->span = state->span;
    state->slot = slot;
    state->records = (struct TailspanRingRecord*)(ring + tailspan_slot_records_at(i));
    state->record_mask = tailspan_slot_capacity(i) - 1;
    state->step_base = (uint64_t)(i + 1) << 48 | (uint64_t)(tailspan_forks & 255) << 40;
    return 1;
  }
  return 0;
}

void tailspan_attach(struct TailspanThreadState* state) {
  state->tid = (uint32_t)syscall(SYS_gettid);
  state->plain_step = TAILSPAN_PLAIN_STEP | state->tid;
  if (!state->step) state->step = state->plain_step;
  if (ring && TakeSlot(state, TAILSPAN_LOOP_SLOTS, TAILSPAN_PLAIN_SLOTS)) {
    pthread_setspecific(thread_end, (void*)(uintptr_t)(tailspan_forks + 1u));
    return;
  }
  if (ring) __atomic_fetch_add(&Header()->threads_lost, 1, __ATOMIC_RELAXED);
  state->slot = &nowhere_slot;
  state->records = &nowhere_record;
  state->record_mask = 0;
  state->step_base = (uint64_t)(TAILSPAN_SLOTS + 1) << 48;
}

void tailspan_enter_loop_slot(struct TailspanThreadState* state) {
  struct TailspanRingSlot* plain = state->slot;
  state->in_loop_slot = 1;
  if (ring && plain != &nowhere_slot && TakeSlot(state, 0, TAILSPAN_LOOP_SLOTS)) FreeSlot(plain);
}

uint16_t tailspan_site(const char* name) {
  if (!ring) return 0;
  struct TailspanRingHeader* header = Header();
  char* sites = (char*)ring + TAILSPAN_RING_SITES_AT;
  uint32_t used = header->sites_used;
  for (uint32_t i = 1; i < used; ++i) {
    if (!strncmp(sites + i * TAILSPAN_SITE_BYTES, name, TAILSPAN_SITE_BYTES - 1)) return (uint16_t)i;
  }
  if (used >= TAILSPAN_SITES) return ++header->sites_lost, 0;
  strncpy(sites + used * TAILSPAN_SITE_BYTES, name, TAILSPAN_SITE_BYTES - 1);
  __atomic_store_n(&header->sites_used, used + 1, __ATOMIC_RELEASE);
  return (uint16_t)used;
}
