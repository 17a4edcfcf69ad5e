#include "probe/record_decoder.h"

#include <algorithm>
#include <cstring>

#include "probe/bpf/wire.h"
#include "probe/classify.h"

namespace tailspan::probe {
namespace {

using model::ThreadInterval;

int64_t Signed(uint64_t ns) { return static_cast<int64_t>(ns); }

model::TraceId IdOf(const __u64 (&raw)[2]) { return model::TraceIdFromBytes(reinterpret_cast<const uint8_t*>(raw)); }

model::SpanId IdOf(const __u64& raw) { return model::SpanIdFromBytes(reinterpret_cast<const uint8_t*>(&raw)); }

void CopyComm(const char (&from)[kWireCommBytes], std::array<char, 16>* to) {
  std::copy(std::begin(from), std::end(from), to->begin());
}

ThreadInterval IntervalOf(const WireWindow& window) {
  ThreadInterval interval;
  interval.pid = static_cast<int32_t>(window.tgid);
  interval.tid = static_cast<int32_t>(window.tid);
  interval.thread_start_mono_ns = Signed(window.start_time_ns);
  interval.sequence = window.sequence;
  interval.window_start_mono_ns = Signed(window.start_mono_ns);
  interval.on_cpu_ns = Signed(window.on_cpu_ns);
  interval.kernel_run_ns = Signed(window.runtime_ns);
  for (size_t i = 0; i < interval.short_ns.size(); ++i) {
    interval.short_ns[i] = window.short_ns[i];
    interval.short_count[i] = window.short_count[i];
  }
  interval.trace_id = IdOf(window.context.trace_id);
  interval.span_id = IdOf(window.context.span_id);
  interval.uuid = IdOf(window.context.uuid);
  interval.span_since_mono_ns = Signed(window.context.changed_mono_ns);
  interval.span_moved = window.flags & kWireContextMoved;
  interval.wait_start_mono_ns = interval.wake_mono_ns = interval.wait_end_mono_ns = Signed(window.end_mono_ns);
  return interval;
}

model::Waker WakerOf(const WireWaker& raw) {
  model::Waker waker;
  waker.kind = WakerKindOf(raw);
  if (waker.kind == model::WakerKind::kNone) return waker;
  waker.pid = static_cast<int32_t>(raw.tgid);
  waker.tid = static_cast<int32_t>(raw.tid);
  waker.syscall = raw.syscall_number;
  waker.futex_address = raw.futex_address;
  waker.trace_id = IdOf(raw.context.trace_id);
  waker.span_id = IdOf(raw.context.span_id);
  CopyComm(raw.comm, &waker.comm);
  return waker;
}

void AddOccupants(const WireWait& wait, ThreadInterval* interval) {
  std::array<const WireOccupant*, kWireOccupants> order;
  for (size_t i = 0; i < order.size(); ++i) order[i] = &wait.occupants[i];
  std::sort(order.begin(), order.end(), [](auto* left, auto* right) { return left->ns > right->ns; });
  for (size_t i = 0; i < interval->occupants.size(); ++i) {
    const WireOccupant& raw = *order[i];
    model::CpuOccupant& occupant = interval->occupants[i];
    occupant.pid = static_cast<int32_t>(raw.tgid);
    occupant.tid = static_cast<int32_t>(raw.tid);
    occupant.ns = Signed(raw.ns);
    occupant.cgroup_id = raw.cgroup_id;
    CopyComm(raw.comm, &occupant.comm);
  }
  interval->occupant_idle_ns = Signed(wait.occupant_idle_ns);
  interval->occupant_other_ns = Signed(wait.occupant_other_ns);
  for (size_t i = interval->occupants.size(); i < order.size(); ++i)
    interval->occupant_other_ns += Signed(order[i]->ns);
}

ThreadInterval IntervalOf(const WireWait& wait) {
  ThreadInterval interval = IntervalOf(wait.window);
  const WireWaitFacts& facts = wait.facts;
  interval.wait_end_mono_ns = Signed(wait.end_mono_ns);
  // Taken on two CPUs, so a waking may seem to lie just outside its wait.
  interval.wake_mono_ns = wait.wake_mono_ns == 0 ? 0
                                                 : std::clamp(Signed(wait.wake_mono_ns), interval.wait_start_mono_ns,
                                                              interval.wait_end_mono_ns);
  interval.wait_class = ClassOf(facts);
  interval.cause = CauseOf(wait);
  interval.preempted = facts.flags & kWireRunnable;
  interval.throttled = facts.flags & kWireThrottled;
  interval.io_wait = facts.flags & kWireIoWait;
  interval.syscall = facts.syscall_number;
  std::copy_n(std::begin(facts.args), interval.syscall_args.size(), interval.syscall_args.begin());
  interval.target = TargetOf(wait);
  interval.waker = WakerOf(wait.waker);
  AddOccupants(wait, &interval);
  interval.gil_holder_tid = facts.gil_holder_tid;
  return interval;
}

model::ProcessEvent EventOf(const WireThreadRecord& raw) {
  model::ProcessEvent event;
  switch (raw.event) {
    case kWireForkProcess:
      event.kind = model::ProcessEventKind::kFork;
      break;
    case kWireForkThread:
      event.kind = model::ProcessEventKind::kThread;
      break;
    case kWireExec:
      event.kind = model::ProcessEventKind::kExec;
      break;
    case kWireExitProcess:
      event.kind = model::ProcessEventKind::kExit;
      break;
    default:
      event.kind = model::ProcessEventKind::kThreadExit;
      break;
  }
  event.at_mono_ns = Signed(raw.at_mono_ns);
  event.start_mono_ns = Signed(raw.start_time_ns);
  event.pid = static_cast<int32_t>(raw.tgid);
  event.tid = static_cast<int32_t>(raw.tid);
  event.parent_pid = static_cast<int32_t>(raw.parent_tgid);
  event.parent_tid = static_cast<int32_t>(raw.parent_tid);
  event.exit_code = raw.exit_code;
  CopyComm(raw.comm, &event.comm);
  return event;
}

void AddressesOf(const WireFlow& flow, model::SocketAddress* local, model::SocketAddress* remote) {
  *local = model::MakeSocketAddress(flow.family, flow.local, flow.local_port);
  *remote = model::MakeSocketAddress(flow.family, flow.remote, flow.remote_port);
}

model::Retransmission RetransmissionOf(const WireRetransmitRecord& raw) {
  model::Retransmission event;
  event.at_mono_ns = Signed(raw.at_mono_ns);
  event.inode = raw.inode;
  event.rto_ns = Signed(raw.rto_ns);
  event.sent_mono_ns = Signed(raw.sent_mono_ns);
  event.round_trip_ns = int64_t{raw.round_trip_us} * 1000;
  event.segments = raw.segments;
  AddressesOf(raw.flow, &event.local, &event.remote);
  return event;
}

model::SocketReady ReadyOf(const WireReadyRecord& raw) {
  model::SocketReady event;
  event.at_mono_ns = Signed(raw.at_mono_ns);
  event.inode = raw.inode;
  AddressesOf(raw.flow, &event.local, &event.remote);
  return event;
}

model::BlockRequest RequestOf(const WireBlockRecord& raw) {
  model::BlockRequest request;
  request.issue_mono_ns = Signed(raw.issue_mono_ns);
  request.complete_mono_ns = Signed(raw.complete_mono_ns);
  request.device = raw.device;
  request.write = raw.write != 0;
  request.size_bytes = raw.bytes;
  request.pid = static_cast<int32_t>(raw.tgid);
  request.tid = static_cast<int32_t>(raw.tid);
  return request;
}

model::CpuSample SampleOf(const WireSampleRecord& raw) {
  model::CpuSample sample;
  sample.at_mono_ns = Signed(raw.at_mono_ns);
  sample.pid = static_cast<int32_t>(raw.tgid);
  sample.tid = static_cast<int32_t>(raw.tid);
  sample.in_kernel = raw.in_kernel != 0;
  sample.address = raw.address;
  sample.span_id = IdOf(raw.span_id);
  return sample;
}

// Reads a record of type T if all of it is there. Copies, since the ring gives no alignment beyond 8 bytes.
template <typename T>
bool Read(const void* data, size_t bytes, T* record) {
  if (bytes < sizeof(T)) return false;
  std::memcpy(record, data, sizeof(T));
  return true;
}

template <typename T, typename Row, typename Decode>
bool Append(const void* data, size_t bytes, std::vector<Row>* rows, Decode decode) {
  T record;
  if (!Read(data, bytes, &record)) return false;
  rows->push_back(decode(record));
  return true;
}

}  // namespace

bool DecodeRecord(const void* data, size_t bytes, model::RecordBatch* batch) {
  uint32_t type = 0;
  if (!Read(data, bytes, &type)) return false;
  const auto interval = [](const auto& raw) { return IntervalOf(raw); };
  switch (type) {
    case kWireFlush:
      return Append<WireWindow>(data, bytes, &batch->intervals, interval);
    case kWireWait:
      return Append<WireWait>(data, bytes, &batch->intervals, interval);
    case kWireThread:
      return Append<WireThreadRecord>(data, bytes, &batch->process_events, EventOf);
    case kWireRetransmit:
      return Append<WireRetransmitRecord>(data, bytes, &batch->retransmissions, RetransmissionOf);
    case kWireReady:
      return Append<WireReadyRecord>(data, bytes, &batch->sockets_ready, ReadyOf);
    case kWireBlock:
      return Append<WireBlockRecord>(data, bytes, &batch->block_requests, RequestOf);
    case kWireSample:
      return Append<WireSampleRecord>(data, bytes, &batch->cpu_samples, SampleOf);
    default:
      return false;
  }
}

}  // namespace tailspan::probe
