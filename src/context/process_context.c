/* OTEP 4719: a named mapping by which a reader finds the thread records and the ring.
 *
 * Header, then a protobuf payload {1 Resource {1 attributes}, 2 extra attributes}, written by hand below. While it is
 * being changed published_at is 0. The mapping is not inherited by fork. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "context/internal.h"
#include "context/thread_state.h"

#ifndef PR_SET_VMA
#  define PR_SET_VMA 0x53564d41
#  define PR_SET_VMA_ANON_NAME 0
#endif

enum { kMappingBytes = 4096, kPartBytes = 512, kTextBytes = 32 };

struct Header {
  char signature[8];
  uint32_t version, payload_bytes;
  uint64_t published_at_ns;
  uint64_t payload;
};
TAILSPAN_LAYOUT(sizeof(struct Header) == 32);

static struct Header* mapping;
static char runtime_name[kTextBytes], runtime_version[kTextBytes];
static int64_t last_tls_offset;
static int last_ring_fd = -1;

/* A growing protobuf message. All our messages are far below kPartBytes; Put refuses what does not fit. */
struct Part {
  uint8_t bytes[kPartBytes];
  size_t size;
};

static void Put(struct Part* part, const void* data, size_t size) {
  if (size > sizeof part->bytes - part->size) return;
  memcpy(part->bytes + part->size, data, size);
  part->size += size;
}

static void PutVarint(struct Part* part, uint64_t value) {
  uint8_t bytes[10];
  size_t size = 0;
  for (; value > 127; value >>= 7) bytes[size++] = (uint8_t)(value | 128);
  bytes[size++] = (uint8_t)value;
  Put(part, bytes, size);
}

static void PutBytes(struct Part* part, uint32_t field, const void* data, size_t size) {
  PutVarint(part, field << 3 | 2);
  PutVarint(part, size);
  Put(part, data, size);
}

static void PutPair(struct Part* part, uint32_t field, const char* key, const struct Part* value) {
  struct Part pair = {.size = 0};
  PutBytes(&pair, 1, key, strlen(key));
  PutBytes(&pair, 2, value->bytes, value->size);
  PutBytes(part, field, pair.bytes, pair.size);
}

static void PutText(struct Part* part, uint32_t field, const char* key, const char* text) {
  struct Part value = {.size = 0};
  PutBytes(&value, 1, text, strlen(text));
  PutPair(part, field, key, &value);
}

static void PutInt(struct Part* part, uint32_t field, const char* key, int64_t number) {
  struct Part value = {.size = 0};
  PutVarint(&value, 3 << 3);
  PutVarint(&value, (uint64_t)number);
  PutPair(part, field, key, &value);
}

static void PutKeyTable(struct Part* part, uint32_t field) {
  static const char* const names[] = {TAILSPAN_KEY_CHANGED_NAME, TAILSPAN_KEY_UUID_NAME};
  struct Part array = {.size = 0}, value = {.size = 0};
  for (size_t i = 0; i < 2; ++i) {
    struct Part name = {.size = 0};
    PutBytes(&name, 1, names[i], strlen(names[i]));
    PutBytes(&array, 1, name.bytes, name.size);
  }
  PutBytes(&value, 5, array.bytes, array.size);
  PutPair(part, field, "threadlocal.attribute_key_map", &value);
}

static void Encode(struct Part* payload) {
  struct Part resource = {.size = 0};
  PutText(&resource, 1, "telemetry.sdk.name", "tailspan");
  if (runtime_name[0]) {
    PutText(&resource, 1, "process.runtime.name", runtime_name);
    PutText(&resource, 1, "process.runtime.version", runtime_version);
  }
  PutBytes(payload, 1, resource.bytes, resource.size);
  PutInt(payload, 2, "tailspan.tls_offset", last_tls_offset);
  if (last_ring_fd >= 0) {
    PutInt(payload, 2, "tailspan.ring_fd", last_ring_fd);
    PutInt(payload, 2, "tailspan.ring_version", TAILSPAN_RING_VERSION);
  }
  PutKeyTable(payload, 2);
}

/* Names an anonymous mapping, or, on kernels that cannot, maps a memfd of that name: both show in /proc/PID/maps. */
static void* MapNamed(void) {
  const char* forced = getenv("TAILSPAN_PROCESS_CONTEXT");
  if (!forced || strcmp(forced, "memfd")) {
    void* memory = mmap(NULL, kMappingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (!prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory, kMappingBytes, "OTEL_CTX")) return memory;
    munmap(memory, kMappingBytes);
  }
  int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  if (fd < 0) return NULL;
  void* memory =
      ftruncate(fd, kMappingBytes) ? MAP_FAILED : mmap(NULL, kMappingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? NULL : memory;
}

static void Write(void) {
  struct Part payload = {.size = 0};
  Encode(&payload);
  __atomic_store_n(&mapping->published_at_ns, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  memcpy(mapping->signature, "OTEL_CTX", sizeof mapping->signature);
  mapping->version = 2;
  mapping->payload_bytes = (uint32_t)payload.size;
  mapping->payload = (uint64_t)(uintptr_t)(mapping + 1);
  memcpy(mapping + 1, payload.bytes, payload.size);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  __atomic_store_n(&mapping->published_at_ns, tailspan_now_ns(), __ATOMIC_RELEASE);
}

int tailspan_process_context_publish(int64_t tls_offset, int ring_fd, const char** problem) {
  if (!mapping) {
    mapping = MapNamed();
    if (!mapping) return *problem = "the process context could not be mapped", 0;
    madvise(mapping, kMappingBytes, MADV_DONTFORK);
  }
  last_tls_offset = tls_offset;
  last_ring_fd = ring_fd;
  Write();
  return 1;
}

void tailspan_process_context_forget(void) { mapping = NULL; }

void tailspan_context_set_runtime(const char* name, const char* version) {
  strncpy(runtime_name, name, kTextBytes - 1);
  strncpy(runtime_version, version, kTextBytes - 1);
  if (mapping) Write();
}
