// Prints what the kernel probes see of a command: dump_intervals [--threshold NS] CMD ARG...
#include <fmt/format.h>

#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <string>

#include "model/cause.h"
#include "probe/recording.h"

namespace {

using tailspan::model::ThreadInterval;

std::string Text(const auto& chars) { return std::string(chars.data(), strnlen(chars.data(), chars.size())); }

void Print(const ThreadInterval& one, int64_t origin) {
  fmt::print("{:10.3f} ms {}/{} #{} window {:.1f} us cpu {:.1f} run {:.1f}",
             double(one.window_start_mono_ns - origin) / 1e6, one.pid, one.tid, one.sequence,
             double(one.wait_start_mono_ns - one.window_start_mono_ns) / 1e3, double(one.on_cpu_ns) / 1e3,
             double(one.kernel_run_ns) / 1e3);
  for (size_t i = 0; i < one.short_ns.size(); ++i)
    if (one.short_count[i]) fmt::print(" s{}={}x{:.1f}", i, one.short_count[i], double(one.short_ns[i]) / 1e3);
  if (one.span_id) fmt::print(" span {:016x}", one.span_id);
  if (one.wait_end_mono_ns > one.wait_start_mono_ns) {
    const int64_t wake = one.wake_mono_ns ? one.wake_mono_ns : one.wait_end_mono_ns;
    fmt::print(" | {} {:.1f}+{:.1f} us sys {} fd {} {} {}>{} ino {} waker k{} {}/{} {} sys {} futex {:x} span {:x}",
               tailspan::model::CauseName(one.cause), double(wake - one.wait_start_mono_ns) / 1e3,
               double(one.wait_end_mono_ns - wake) / 1e3, one.syscall, one.target.fd, Text(one.target.name),
               ToText(one.target.local), ToText(one.target.remote), one.target.inode, int(one.waker.kind),
               one.waker.pid, one.waker.tid, Text(one.waker.comm), one.waker.syscall, one.waker.futex_address,
               one.waker.span_id);
    if (one.gil_holder_tid) fmt::print(" holder {}", one.gil_holder_tid);
    for (const auto& who : one.occupants)
      if (who.ns) fmt::print(" occ {}/{}={:.1f}us", Text(who.comm), who.tid, double(who.ns) / 1e3);
    if (one.occupant_idle_ns) fmt::print(" idle {:.1f}us", double(one.occupant_idle_ns) / 1e3);
  }
  fmt::print("\n");
}

}  // namespace

int main(int count, char** arguments) {
  tailspan::probe::KernelProbesOptions options;
  int first = 1;
  if (count > 2 && std::string(arguments[1]) == "--threshold") {
    options.threshold_ns = std::atoll(arguments[2]);
    first = 3;
  }
  if (first >= count) {
    fmt::print(stderr, "usage: {} [--threshold NS] CMD ARG...\n", arguments[0]);
    return 2;
  }
  const auto recorded = tailspan::probe_test::RecordCommand({arguments + first, arguments + count}, options);
  if (!recorded) {
    fmt::print(stderr, "{}\n", recorded.error().message);
    return 1;
  }
  for (const auto& one : recorded->capabilities)
    fmt::print("{:20} {} {}{}{}\n", one.signal, one.on ? "on" : "off", one.reason, one.remedy.empty() ? "" : "; ",
               one.remedy);
  const int64_t origin = recorded->batch.intervals.empty() ? 0 : recorded->batch.intervals[0].window_start_mono_ns;
  fmt::print("origin {} ns\n", origin);
  for (const auto& event : recorded->batch.process_events)
    fmt::print("{:10.3f} ms event {} {}/{} of {} {}\n", double(event.at_mono_ns - origin) / 1e6, int(event.kind),
               event.pid, event.tid, event.parent_pid, Text(event.comm));
  for (const ThreadInterval& one : recorded->batch.intervals) Print(one, origin);
  for (const auto& one : recorded->batch.retransmissions)
    fmt::print("retransmit {} > {} ino {} rto {} ms\n", ToText(one.local), ToText(one.remote), one.inode,
               one.rto_ns / 1000000);
  for (const auto& one : recorded->batch.block_requests)
    fmt::print("block dev {:x} {} bytes {} us tid {}\n", one.device, one.size_bytes,
               (one.complete_mono_ns - one.issue_mono_ns) / 1000, one.tid);
  const auto& lost = recorded->losses;
  fmt::print(
      "{} ready, {} samples, {} records, {} switches; ring full {}, dropped {}, unfollowed {}, holes {} ({} ns), "
      "repaired {}, maps full {}, contexts unreadable {}, recursion {}, undecodable {}\n",
      recorded->batch.sockets_ready.size(), recorded->batch.cpu_samples.size(), lost.records, lost.switches,
      lost.ring_full, lost.dropped_on_purpose, lost.threads_not_followed, lost.holes, lost.holes_ns, lost.repaired,
      lost.maps_full, lost.contexts_unreadable, lost.recursion_misses, lost.undecodable);
  return 0;
}
