// What a process says about itself by OTEP 4719 ("OTEL_CTX"): where its threads keep their span record, and its ring.
//
// Everything read here was written by the process and is taken as a claim about itself: bounded, checked, never trusted
// with more. Reading needs the right to read the process's memory (its own user, or CAP_SYS_PTRACE).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tailspan::probe {

inline constexpr size_t kContextPayloadBytesMax = 65536;
inline constexpr size_t kMapsBytesMax = 64u << 20;

struct ProcessContext {
  bool has_tls_offset = false;
  int64_t tls_offset = 0;         // of the pointer otel_thread_ctx_v1, from the thread pointer
  int32_t ring_fd = -1;           // number in that process; -1 it has no ring
  uint32_t ring_version = 0;      // of the ring's layout
  std::string runtime;            // "cpython 3.11.2"; "" unknown
  std::vector<std::string> keys;  // names of the record's attribute keys, by index
  int64_t published_mono_ns = 0;
};

// kNotFound: the process is gone or publishes nothing. kDataLoss: what it publishes is not valid, or kept changing.
// A vfork child shows its parent's context until it execs: compare rings by LoopRingReader::identity.
base::Result<ProcessContext> ReadProcessContext(int32_t pid);

// The payload alone. Unknown fields and attributes are skipped.
base::Result<ProcessContext> ParseProcessContext(std::span<const uint8_t> payload);

struct MemoryRange {
  uint64_t start = 0, end = 0;
};

// Readable mappings of that name in the text of /proc/PID/maps: "[anon:NAME]" or "/memfd:NAME (deleted)".
std::vector<MemoryRange> FindMappings(std::string_view maps, std::string_view name);

// Opens for reading what a path of a process's own choosing leads to, if it is a regular file: opening a FIFO or a
// device could block or act, and the first look does neither. -1: it is not, or cannot be opened (errno).
int OpenRegularFile(const std::string& path);

// /proc/PID/maps, up to kMapsBytesMax.
base::Result<std::string> ReadMaps(int32_t pid);

}  // namespace tailspan::probe
