#include "probe/loop_ring_decode.h"

#include <endian.h>
#include <sys/socket.h>

#include <cstring>

namespace tailspan::probe {
namespace {

constexpr int64_t kFutureMaxNs = 1'000'000'000;     // clocks are the same; a step may end while we drain
constexpr int64_t kStepMaxNs = 86'400'000'000'000;  // a day

// The 8 bytes of a span id as they stand in memory, as the number the model has.
model::SpanId SpanNumber(uint64_t bytes) { return be64toh(bytes); }

bool IsRealStep(uint64_t step) { return step >> 48 != 0xFFFF; }

model::StepKind KindOf(const TailspanRingRecord& record) {
  if (record.flags & TAILSPAN_FIRST) return model::StepKind::kNewTask;
  switch (record.kind) {
    case TAILSPAN_IO_READ:
      return model::StepKind::kIoRead;
    case TAILSPAN_IO_WRITE:
      return model::StepKind::kIoWrite;
    case TAILSPAN_TIMER:
      return model::StepKind::kTimer;
    case TAILSPAN_EXECUTOR:
      return model::StepKind::kExecutor;
    default:
      return model::StepKind::kSoon;
  }
}

TailspanRingSocket SocketOf(const TailspanRingRecord& record) {
  TailspanRingSocket socket;
  std::memcpy(&socket, &record, sizeof socket);
  return socket;
}

bool IsVersion(uint8_t ip_version) { return ip_version == 0 || ip_version == 4 || ip_version == 6; }

bool IsPlausibleSocket(const TailspanRingSocket& socket) {
  if (socket.fd < 0 || !IsVersion(socket.local_version) || !IsVersion(socket.remote_version)) return false;
  return socket.local_version ? socket.inode != 0 : socket.remote_version == 0;
}

model::SocketAddress AddressOf(uint8_t ip_version, const uint8_t (&bytes)[16], uint16_t port) {
  return model::MakeSocketAddress(ip_version == 4 ? AF_INET : ip_version == 6 ? AF_INET6 : AF_UNSPEC, bytes, port);
}

}  // namespace

bool IsPlausibleRecord(const TailspanRingRecord& record, int64_t now_mono_ns) {
  const uint64_t limit = static_cast<uint64_t>(now_mono_ns + kFutureMaxNs);
  if (record.type < TAILSPAN_STEP || record.type > TAILSPAN_SOCKET || record.tid == 0 || record.tid > INT32_MAX)
    return false;
  if (record.end_ns > limit || record.start_ns > record.end_ns || record.start_ns == 0) return false;
  if (record.type == TAILSPAN_SOCKET) return IsPlausibleSocket(SocketOf(record));  // may be open for any time
  if (record.end_ns - record.start_ns > static_cast<uint64_t>(kStepMaxNs)) return false;
  switch (record.type) {
    case TAILSPAN_STEP:
      return record.kind >= TAILSPAN_SOON && record.kind <= TAILSPAN_EXECUTOR && record.ready_ns <= record.start_ns &&
             record.site < TAILSPAN_SITES && record.step != 0 && IsRealStep(record.step);
    case TAILSPAN_SPAN:
      return record.kind >= TAILSPAN_ENTER && record.kind <= TAILSPAN_RESTORE;
    case TAILSPAN_POLL:
      return record.ready_ns >= record.start_ns && record.ready_ns <= record.end_ns && record.fd >= 0;
    default:
      return true;
  }
}

namespace {

model::LoopStep StepOf(int32_t pid, const TailspanRingRecord& record) {
  model::LoopStep step;
  step.pid = pid;
  step.tid = static_cast<int32_t>(record.tid);
  step.step_id = record.step;
  step.kind = KindOf(record);
  const bool by_poll = record.kind == TAILSPAN_IO_READ || record.kind == TAILSPAN_IO_WRITE;
  step.waker_step_id = by_poll ? 0 : record.waker_step;  // the ring has who registered it; the poll made it ready
  step.waker_span_id = by_poll ? 0 : SpanNumber(record.waker_span);
  step.task = record.task;
  step.site = record.site;
  step.fd = record.fd;
  step.span_id = SpanNumber(record.span);
  step.outer_span_id = SpanNumber(record.outer_span);
  step.ready_mono_ns = static_cast<int64_t>(record.ready_ns);
  step.start_mono_ns = static_cast<int64_t>(record.start_ns);
  step.end_mono_ns = static_cast<int64_t>(record.end_ns);
  return step;
}

model::SocketInfo SocketInfoOf(int32_t pid, const TailspanRingSocket& socket) {
  return {pid,
          socket.fd,
          static_cast<int64_t>(socket.start_ns),
          socket.inode,
          AddressOf(socket.local_version, socket.local, socket.local_port),
          AddressOf(socket.remote_version, socket.remote, socket.remote_port),
          true};
}

}  // namespace

void AppendRecord(int32_t pid, const TailspanRingRecord& record, model::RecordBatch* batch) {
  const int32_t tid = static_cast<int32_t>(record.tid);
  const uint64_t step_id = IsRealStep(record.step) ? record.step : 0;
  const auto start = static_cast<int64_t>(record.start_ns), end = static_cast<int64_t>(record.end_ns);
  switch (record.type) {
    case TAILSPAN_STEP:
      batch->steps.push_back(StepOf(pid, record));
      break;
    case TAILSPAN_SPAN: {
      const auto kind = record.kind == TAILSPAN_ENTER   ? model::SpanChangeKind::kEnter
                        : record.kind == TAILSPAN_LEAVE ? model::SpanChangeKind::kLeave
                                                        : model::SpanChangeKind::kRestore;
      batch->span_changes.push_back(
          {pid, tid, start, step_id, SpanNumber(record.span), SpanNumber(record.outer_span), kind});
      break;
    }
    case TAILSPAN_POLL:
      batch->polls.push_back({pid, tid, start, static_cast<int64_t>(record.ready_ns), end, record.fd});
      break;
    case TAILSPAN_SOCKET:
      batch->sockets.push_back(SocketInfoOf(pid, SocketOf(record)));
      break;
    default:
      batch->gc_pauses.push_back({pid, tid, start, end, record.fd, step_id, SpanNumber(record.span)});
  }
}

}  // namespace tailspan::probe
