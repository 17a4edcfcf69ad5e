// What the kernel probes told. Times are CLOCK_MONOTONIC of the row's host.
#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
namespace {

using Interval = model::ThreadInterval;

void AddShortWaits(Table<Interval>& t) {
  const std::string type = "STRUCT(wait_class " + WaitClassEnum().sql_name + ", ns BIGINT, count UINTEGER)[]";
  t.Add({"short_waits", type, "waits in the window that were shorter than the threshold, summed by class; ns, count",
         [](const Interval* rows, size_t n, duckdb_vector vector, size_t at, WriteContext&) {
           for (size_t i = 0; i < n; ++i) WriteShortWaits(vector, at + i, rows[i]);
         },
         [](duckdb_vector vector, size_t at, size_t n, Interval* rows) {
           for (size_t i = 0; i < n; ++i) ReadShortWaits(vector, at + i, &rows[i]);
         }});
}

void AddTarget(Table<Interval>& t) {
  t.Enum("target_kind", "what it waited at", TAILSPAN_FIELD(target.kind), TargetKindEnum());
  t.Number("target_for_write", "it waited to be able to send", TAILSPAN_FIELD(target.for_write));
  t.Optional("target_fd", "file descriptor; NULL none", TAILSPAN_FIELD(target.fd), -1);
  t.Optional("target_address", "futex word or fault address; NULL none", TAILSPAN_FIELD(target.address), 0);
  t.Optional("target_inode", "of file, pipe or socket; NULL none", TAILSPAN_FIELD(target.inode), 0);
  t.Number("target_device", "the file's device, kernel encoding", TAILSPAN_FIELD(target.device));
  t.Address("target_local", "the socket's own end", TAILSPAN_FIELD(target.local));
  t.Address("target_remote", "the socket's other end", TAILSPAN_FIELD(target.remote));
  t.Text("target_name", "file name, cut at 32 bytes", TAILSPAN_FIELD(target.name));
}

void AddWaker(Table<Interval>& t) {
  t.Enum("waker_kind", "who made it runnable", TAILSPAN_FIELD(waker.kind), WakerKindEnum());
  t.Optional("waker_pid", "the waker's process; NULL none", TAILSPAN_FIELD(waker.pid), 0);
  t.Optional("waker_tid", "the waker's thread; NULL none", TAILSPAN_FIELD(waker.tid), 0);
  t.Optional("waker_syscall", "the waker's system call; NULL none or unknown", TAILSPAN_FIELD(waker.syscall), -1);
  t.Optional("waker_futex_address", "the futex it woke; NULL none", TAILSPAN_FIELD(waker.futex_address), 0);
  t.Id128("waker_trace_id", "the trace it served then; NULL unknown", TAILSPAN_FIELD(waker.trace_id));
  t.SpanIdOf("waker_span_id", "the span it served then; NULL unknown", TAILSPAN_FIELD(waker.span_id));
  t.Text("waker_comm", "the waker's name", TAILSPAN_FIELD(waker.comm));
}

void AddOccupants(Table<Interval>& t) {
  for (size_t i = 0; i < Interval{}.occupants.size(); ++i) {
    std::string name = "occupant" + std::to_string(i + 1);
    std::string who = "who had the CPU while this thread was runnable, " + std::string(i ? "second" : "longest");
    t.Optional(
        name + "_pid", who + ": process; NULL none", [i](auto& row) -> auto& { return row.occupants[i].pid; }, 0);
    t.Optional(
        name + "_tid", who + ": thread; NULL none", [i](auto& row) -> auto& { return row.occupants[i].tid; }, 0);
    t.Optional(
        name + "_cgroup_id", who + ": cgroup of the unified hierarchy; NULL unknown",
        [i](auto& row) -> auto& { return row.occupants[i].cgroup_id; }, 0);
    t.Number(
        name + "_ns", who + ": for how long, ns", [i](auto& row) -> auto& { return row.occupants[i].ns; });
    t.Text(
        name + "_comm", who + ": name", [i](auto& row) -> auto& { return row.occupants[i].comm; });
  }
}

}  // namespace

const Table<Interval>& IntervalTable() {
  static const auto table = [] {
    Table<Interval> t("thread_interval",
                      "The life of each followed thread, cut into consecutive records: a window in which it ran and "
                      "took short waits, then at most one long wait [wait_start, wait_end).",
                      {"window_start_mono_ns", "wait_end_mono_ns"});
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(window_start_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("tid", "thread", TAILSPAN_FIELD(tid));
    t.Number("thread_start_mono_ns", "when the thread started: ids come back, (tid, start) does not",
             TAILSPAN_FIELD(thread_start_mono_ns));
    t.Number("sequence", "consecutive per thread; a hole is a loss", TAILSPAN_FIELD(sequence));
    t.Number("window_start_mono_ns", "start of the window", TAILSPAN_FIELD(window_start_mono_ns));
    t.Number("on_cpu_ns", "measured run time in the window, ns", TAILSPAN_FIELD(on_cpu_ns));
    t.Optional("kernel_run_ns", "the scheduler's own book of the same, ns; NULL it could not be read",
               TAILSPAN_FIELD(kernel_run_ns), -1);
    AddShortWaits(t);
    t.Id128("trace_id", "the published trace; NULL none", TAILSPAN_FIELD(trace_id));
    t.SpanIdOf("span_id", "the published span; NULL none", TAILSPAN_FIELD(span_id));
    t.Id128("uuid", "the published run id; NULL none", TAILSPAN_FIELD(uuid));
    t.Number("span_since_mono_ns", "since when the thread had that span", TAILSPAN_FIELD(span_since_mono_ns));
    t.Number("span_moved", "within the window the span changed to others and came back", TAILSPAN_FIELD(span_moved));
    t.Number("wait_start_mono_ns", "start of the long wait, end of the window", TAILSPAN_FIELD(wait_start_mono_ns));
    t.Optional("wake_mono_ns", "when it became runnable; NULL unknown", TAILSPAN_FIELD(wake_mono_ns), 0);
    t.Number("wait_end_mono_ns", "when it ran again; wait_start when there was no long wait",
             TAILSPAN_FIELD(wait_end_mono_ns));
    t.Enum("wait_class", "the kernel's coarse class of the wait", TAILSPAN_FIELD(wait_class), WaitClassEnum());
    t.Enum("cause", "cause of the blocked part [wait_start, wake); the rest is run_queue", TAILSPAN_FIELD(cause),
           CauseEnum());
    t.Number("preempted", "it was runnable all the time", TAILSPAN_FIELD(preempted));
    t.Number("throttled", "its cgroup had used up its quota", TAILSPAN_FIELD(throttled));
    t.Number("io_wait", "the kernel counted it as waiting for a device", TAILSPAN_FIELD(io_wait));
    t.Optional("syscall", "number of the system call; NULL none", TAILSPAN_FIELD(syscall), -1);
    for (size_t i = 0; i < Interval{}.syscall_args.size(); ++i) {
      t.Number(
          "syscall_arg" + std::to_string(i), "its argument", [i](auto& row) -> auto& { return row.syscall_args[i]; });
    }
    AddTarget(t);
    AddWaker(t);
    AddOccupants(t);
    t.Number("occupant_idle_ns", "of the runnable part the CPU was idle, ns", TAILSPAN_FIELD(occupant_idle_ns));
    t.Number("occupant_other_ns", "of the runnable part others than those two had it, ns",
             TAILSPAN_FIELD(occupant_other_ns));
    t.Optional("gil_holder_tid", "who held the interpreter lock at wait_start; NULL unknown",
               TAILSPAN_FIELD(gil_holder_tid), 0);
    return t;
  }();
  return table;
}

const Table<model::ProcessInfo>& ProcessTable() {
  static const auto table = [] {
    Table<model::ProcessInfo> t("process",
                                "Processes that were followed or are blamed. The last row of (pid, "
                                "process_start_mono_ns) counts.");
    t.Host();
    t.Number("process_start_mono_ns", "when it started: with pid its identity", TAILSPAN_FIELD(key.start_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(key.pid));
    t.Number("parent_pid", "its parent", TAILSPAN_FIELD(parent_pid));
    t.Optional("end_mono_ns", "when it ended; NULL: it still ran", TAILSPAN_FIELD(end_mono_ns), 0);
    t.Text("comm", "short name", TAILSPAN_FIELD(comm));
    t.Text("command", "its arguments, cut at 256 bytes", TAILSPAN_FIELD(command));
    t.Text("cgroup", "its cgroup", TAILSPAN_FIELD(cgroup));
    t.Text("runtime", "language runtime and version; empty unknown", TAILSPAN_FIELD(runtime));
    t.Number("has_loop_ring", "its event loops were recorded", TAILSPAN_FIELD(has_loop_ring));
    return t;
  }();
  return table;
}

const Table<model::ProcessEvent>& ProcessEventTable() {
  static const auto table = [] {
    Table<model::ProcessEvent> t("process_event", "Forks, new threads, execs and exits of followed processes.");
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(at_mono_ns));
    t.Enum("kind", "what happened", TAILSPAN_FIELD(kind), ProcessEventEnum());
    t.Number("at_mono_ns", "when", TAILSPAN_FIELD(at_mono_ns));
    t.Number("pid", "the process it happened to", TAILSPAN_FIELD(pid));
    t.Number("tid", "the thread it happened to", TAILSPAN_FIELD(tid));
    t.Number("parent_pid", "the process that made it", TAILSPAN_FIELD(parent_pid));
    t.Number("parent_tid", "the thread that made it", TAILSPAN_FIELD(parent_tid));
    t.Number("thread_start_mono_ns", "when this thread started", TAILSPAN_FIELD(start_mono_ns));
    t.Number("exit_code", "for exits, as wait(2) gives it", TAILSPAN_FIELD(exit_code));
    t.Text("comm", "name at that moment", TAILSPAN_FIELD(comm));
    return t;
  }();
  return table;
}

const Table<model::Retransmission>& RetransmissionTable() {
  static const auto table = [] {
    Table<model::Retransmission> t("retransmission", "TCP segments sent again.", {"at_mono_ns", "at_mono_ns"});
    t.Host();
    t.Number("at_mono_ns", "when", TAILSPAN_FIELD(at_mono_ns));
    t.Address("local", "the sender's end", TAILSPAN_FIELD(local));
    t.Address("remote", "the receiver's end", TAILSPAN_FIELD(remote));
    t.Optional("inode", "the sender's socket; NULL when it has no file", TAILSPAN_FIELD(inode), 0);
    t.Number("rto_ns", "the sender's timeout then, ns", TAILSPAN_FIELD(rto_ns));
    t.Optional("sent_mono_ns", "the lost segment was first sent then, or a little later; NULL unknown",
               TAILSPAN_FIELD(sent_mono_ns), 0);
    t.Number("round_trip_ns", "the sender's smoothed estimate, ns", TAILSPAN_FIELD(round_trip_ns));
    t.Number("segments", "how many segments", TAILSPAN_FIELD(segments));
    return t;
  }();
  return table;
}

const Table<model::SocketInfo>& SocketTable() {
  static const auto table = [] {
    Table<model::SocketInfo> t("socket",
                               "Descriptors that are sockets. A row holds until the next one of the same descriptor.");
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(from_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("fd", "file descriptor", TAILSPAN_FIELD(fd));
    t.Number("from_mono_ns", "since when it is so", TAILSPAN_FIELD(from_mono_ns));
    t.Number("inode", "the socket; 0 when it is none", TAILSPAN_FIELD(inode));
    t.Address("local", "its own end", TAILSPAN_FIELD(local));
    t.Address("remote", "its other end", TAILSPAN_FIELD(remote));
    t.Number("registered", "told by its event loop: from_mono_ns is exact, else up to a second late",
             TAILSPAN_FIELD(registered));
    return t;
  }();
  return table;
}

const Table<model::SocketReady>& SocketReadyTable() {
  static const auto table = [] {
    Table<model::SocketReady> t("socket_ready", "Data came in on a socket.", {"at_mono_ns", "at_mono_ns"});
    t.Host();
    t.Number("at_mono_ns", "when", TAILSPAN_FIELD(at_mono_ns));
    t.Number("inode", "the socket", TAILSPAN_FIELD(inode));
    t.Address("local", "its own end", TAILSPAN_FIELD(local));
    t.Address("remote", "its other end", TAILSPAN_FIELD(remote));
    return t;
  }();
  return table;
}

const Table<model::BlockRequest>& BlockRequestTable() {
  static const auto table = [] {
    Table<model::BlockRequest> t("block_request", "Requests to block devices.", {"issue_mono_ns", "complete_mono_ns"});
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(issue_mono_ns));
    t.Number("issue_mono_ns", "given to the device", TAILSPAN_FIELD(issue_mono_ns));
    t.Number("complete_mono_ns", "done", TAILSPAN_FIELD(complete_mono_ns));
    t.Number("device", "kernel encoding", TAILSPAN_FIELD(device));
    t.Number("is_write", "a write", TAILSPAN_FIELD(write));
    t.Number("size_bytes", "size", TAILSPAN_FIELD(size_bytes));
    t.Number("pid", "who issued it; may be a kernel thread", TAILSPAN_FIELD(pid));
    t.Number("tid", "its thread", TAILSPAN_FIELD(tid));
    return t;
  }();
  return table;
}

const Table<model::CpuSample>& CpuSampleTable() {
  static const auto table = [] {
    Table<model::CpuSample> t("cpu_sample", "Where followed threads were on the CPU.", {"at_mono_ns", "at_mono_ns"});
    t.Host();
    t.ProcessStart(TAILSPAN_FIELD(pid), TAILSPAN_FIELD(at_mono_ns));
    t.Number("at_mono_ns", "when", TAILSPAN_FIELD(at_mono_ns));
    t.Number("pid", "process", TAILSPAN_FIELD(pid));
    t.Number("tid", "thread", TAILSPAN_FIELD(tid));
    t.Number("in_kernel", "in the kernel", TAILSPAN_FIELD(in_kernel));
    t.Number("address", "instruction", TAILSPAN_FIELD(address));
    t.SpanIdOf("span_id", "the published span; NULL none", TAILSPAN_FIELD(span_id));
    return t;
  }();
  return table;
}

}  // namespace tailspan::store::duckdb
