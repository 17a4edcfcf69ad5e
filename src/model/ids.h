// Identities. Numbers of the operating system come back, so a process is (pid, start time) and a host is (host, boot).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tailspan::model {

// 16 bytes in wire order; all zero means "none".
struct TraceId {
  uint64_t hi = 0;  // first 8 bytes, big endian
  uint64_t lo = 0;  // last 8 bytes, big endian
  auto operator<=>(const TraceId&) const = default;
  explicit operator bool() const { return hi || lo; }
};

using Uuid = TraceId;     // a LangSmith run id: the same 16 bytes
using SpanId = uint64_t;  // 8 bytes, big endian; 0 means "none"

std::string ToHex(TraceId id);    // 32 lower-case digits
std::string ToHex(SpanId id);     // 16 lower-case digits
std::string ToUuidText(Uuid id);  // 8-4-4-4-12
// Accepts 32 hex digits with or without the dashes of a UUID.
std::optional<TraceId> TraceIdFromText(std::string_view text);
std::optional<SpanId> SpanIdFromText(std::string_view text);
TraceId TraceIdFromBytes(const uint8_t bytes[16]);
SpanId SpanIdFromBytes(const uint8_t bytes[8]);
std::array<uint8_t, 16> ToBytes(TraceId id);

// The span id of a LangSmith run: the last 8 bytes of its UUID, because the first 8 of a UUIDv7 are nearly all time
// (100,000 ids had 216 distinct first halves and 100,000 distinct last ones).
inline SpanId SpanIdOfRun(Uuid run) { return run.lo; }

struct ProcessKey {
  int32_t pid = 0;
  int64_t start_mono_ns = 0;  // when it started, from /proc/PID/stat or the fork record
  auto operator<=>(const ProcessKey&) const = default;
};

struct HostKey {
  std::string host;  // node name
  std::string boot;  // /proc/sys/kernel/random/boot_id
  auto operator<=>(const HostKey&) const = default;
};

// Of numbers that others chose (span ids, thread ids): seeded once a process, so that nobody can choose them to fall
// into one bucket. Never go through such a map where the order matters.
struct ForeignNumberHash {
  size_t operator()(uint64_t number) const;
};

// The same of ids of 16 bytes.
struct IdHash {
  size_t operator()(TraceId id) const { return ForeignNumberHash()(ForeignNumberHash()(id.hi) ^ id.lo); }
};

}  // namespace tailspan::model
