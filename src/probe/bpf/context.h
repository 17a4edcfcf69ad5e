// Reads the span that a thread publishes: the OpenTelemetry thread context record (OTEP 4947), by way of its TLS
// pointer. Only for the running task or the one that is just leaving the CPU: the memory must be mapped here.
#ifndef TAILSPAN_PROBE_BPF_CONTEXT_H_
#define TAILSPAN_PROBE_BPF_CONTEXT_H_

#include "maps.h"

// The record's fixed part and the two attributes that our library always writes first.
struct ThreadContextRecord {
  u64 trace_id[2];
  u64 span_id;
  u8 valid;
  u8 trace_flags;
  u16 attributes_bytes;
  u8 changed_key, changed_bytes;
  u8 changed_mono_ns[8];
  u8 uuid_key, uuid_bytes;
  u8 uuid[16];
} __attribute__((packed));
_Static_assert(sizeof(struct ThreadContextRecord) == 56, "OTEP 4947 layout");

INLINE u64 ThreadPointer(struct task_struct* task) {
#if defined(__TARGET_ARCH_x86)
  return task->thread.fsbase;
#else
  return task->thread.uw.tp_value;
#endif
}

enum ContextRead { kContextRead, kContextBetween, kContextUnreadable };

// Fills in the context; leaves it as it was when the thread is just writing it, or the memory could not be read.
INLINE int ReadContext(struct task_struct* task, const struct WireLayout* layout, struct WireContext* context) {
  u64 pointer = 0;
  if (bpf_probe_read_user(&pointer, sizeof(pointer), (void*)(ThreadPointer(task) + layout->tls_offset)))
    return kContextUnreadable;
  if (!pointer) {
    __builtin_memset(context, 0, sizeof(*context));
    return kContextRead;
  }
  struct ThreadContextRecord record;
  if (bpf_probe_read_user(&record, sizeof(record), (void*)pointer)) return kContextUnreadable;
  if (record.valid != 1) return kContextBetween;
  __builtin_memset(context, 0, sizeof(*context));
  context->trace_id[0] = record.trace_id[0];
  context->trace_id[1] = record.trace_id[1];
  context->span_id = record.span_id;
  // Another writer's record has other attributes, and then neither the time nor the long id.
  if (record.attributes_bytes >= 28 && record.changed_key == 0 && record.changed_bytes == 8 && record.uuid_key == 1 &&
      record.uuid_bytes == 16) {
    __builtin_memcpy(&context->changed_mono_ns, record.changed_mono_ns, 8);
    __builtin_memcpy(context->uuid, record.uuid, 16);
  }
  return kContextRead;
}

#endif  // TAILSPAN_PROBE_BPF_CONTEXT_H_
