#include "probe/kernel_probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/loss.h"
#include "block.skel.h"
#include "fault_address.skel.h"
#include "fault_file.skel.h"
#include "flow_birth.skel.h"
#include "hot.skel.h"
#include "irq.skel.h"
#include "irq_timer.skel.h"
#include "probe/bpf/wire.h"
#include "probe/host_facts.h"
#include "probe/kernel_object.h"
#include "probe/process_context.h"
#include "probe/python_runtime.h"
#include "probe/record_decoder.h"
#include "ready.skel.h"
#include "retransmit.skel.h"
#include "sample.skel.h"
#include "thread_walk.skel.h"

namespace tailspan::probe {
namespace {

using base::Result;
using base::Status;

constexpr int64_t kLayoutFirstRetryNs = 50'000'000;
constexpr int64_t kLayoutLastRetryNs = 1'000'000'000;
constexpr int64_t kLayoutEagerNs = 10'000'000'000;   // this long after an exec the first interval holds
constexpr int64_t kLayoutGiveUpNs = 60'000'000'000;  // then a process without interpreter and context is left alone
constexpr size_t kLayoutTriesPerDrain = 16;

struct OptionalSignal {
  const char* name;
  const void* (*elf)(size_t* bytes);
  bool is_cpu_clock;
  const char* remedy;
};

const void* FaultFileElf(size_t* bytes) { return fault_file_bpf__elf_bytes(bytes); }
const void* FaultAddressElf(size_t* bytes) { return fault_address_bpf__elf_bytes(bytes); }
const void* IrqElf(size_t* bytes) { return irq_bpf__elf_bytes(bytes); }
const void* IrqTimerElf(size_t* bytes) { return irq_timer_bpf__elf_bytes(bytes); }
const void* FlowBirthElf(size_t* bytes) { return flow_birth_bpf__elf_bytes(bytes); }
const void* RetransmitElf(size_t* bytes) { return retransmit_bpf__elf_bytes(bytes); }
const void* ReadyElf(size_t* bytes) { return ready_bpf__elf_bytes(bytes); }
const void* BlockElf(size_t* bytes) { return block_bpf__elf_bytes(bytes); }
const void* SampleElf(size_t* bytes) { return sample_bpf__elf_bytes(bytes); }

constexpr const char* kFaultFile = "page_fault_file";
constexpr const char* kFaultAddress = "page_fault_address";

// In this order: the address of a fault is only tried where its file cannot be had.
const OptionalSignal kOptionalSignals[] = {
    {"interrupts", IrqElf, false,
     "none needed: wakings by devices and the network are then told by the idle CPU alone"},
    {"timer_interrupts", IrqTimerElf, false, "none needed: x86 only"},
    {kFaultFile, FaultFileElf, false, "a kernel with the tracepoint filemap:mm_filemap_fault (6.13 or later)"},
    {kFaultAddress, FaultAddressElf, false, "a kernel with the tracepoint exceptions:page_fault_user (x86)"},
    {"connections", FlowBirthElf, false, "a kernel with the tracepoint sock:inet_sock_set_state"},
    {"retransmit", RetransmitElf, false, "a kernel with the tracepoint tcp:tcp_retransmit_skb"},
    {"socket_ready", ReadyElf, false,
     "a kernel with the tracepoint sock:sk_data_ready (6.3 or later); without it event_loop time on sockets is a "
     "bound"},
    {"block_requests", BlockElf, false, "a kernel with the block tracepoints"},
    {"cpu_samples", SampleElf, true, "set kernel.perf_event_paranoid to 2 or less, or run as root"},
};

constexpr const char* kPrivilegeRemedy = "run as root, or give the program CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE";

std::string RemedyOf(const base::Error& error, const char* otherwise) {
  return error.code == base::Code::kPermission ? kPrivilegeRemedy : otherwise;
}

uint32_t PowerOfTwoFrom(uint32_t n) {
  uint32_t power = 1;
  while (power < n) power *= 2;
  return power;
}

std::vector<int32_t> ThreadsOf(int32_t pid) {
  std::vector<int32_t> tids;
  DIR* directory = opendir(fmt::format("/proc/{}/task", pid).c_str());
  if (!directory) return tids;
  while (const dirent* entry = readdir(directory)) {
    const int tid = std::atoi(entry->d_name);
    if (tid > 0) tids.push_back(tid);
  }
  closedir(directory);
  return tids;
}

// What a thread is in the middle of, as a record that ends now.
void AppendOpenWindow(int32_t pid, const WireOpenThread& open, model::RecordBatch* records) {
  const WireThreadState& thread = open.state;
  const auto now = static_cast<uint64_t>(base::MonoNowNs());
  if (!thread.started || thread.mark > now) return;
  WireWait wait{};
  wait.window.tid = static_cast<uint32_t>(open.tid);
  wait.window.tgid = static_cast<uint32_t>(pid);
  wait.window.start_time_ns = thread.start_time_ns;
  wait.window.sequence = thread.sequence;
  wait.window.runtime_ns = UINT64_MAX;  // not read
  wait.window.start_mono_ns = thread.window_start;
  wait.window.on_cpu_ns = thread.on_cpu_ns;
  wait.window.context = thread.context;
  std::memcpy(wait.window.short_ns, thread.short_ns, sizeof thread.short_ns);
  std::memcpy(wait.window.short_count, thread.short_count, sizeof thread.short_count);
  if (thread.out == 0) {
    wait.window.type = kWireFlush;
    wait.window.on_cpu_ns += now - thread.mark;
    wait.window.end_mono_ns = now;
    DecodeRecord(&wait.window, sizeof wait.window, records);
    return;
  }
  wait.window.type = kWireWait;
  wait.window.end_mono_ns = thread.out;
  wait.end_mono_ns = std::max<uint64_t>(now, thread.out);
  wait.wake_mono_ns = thread.wake;
  wait.facts = thread.facts;
  if (thread.waker.flags) wait.waker = thread.waker;
  DecodeRecord(&wait, sizeof wait, records);
}

struct PendingLayout {
  int64_t since_mono_ns = 0;
  int64_t next_mono_ns = 0;
};

}  // namespace

struct KernelProbes::State {
  struct FreeRing {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };

  Status LoadHot(const KernelProbesOptions& options);
  void LoadOptional(const KernelProbesOptions& options);
  Status TryOptional(const OptionalSignal& signal, const KernelProbesOptions& options);
  void SetCapability(const std::string& signal, const Status& status, const char* remedy);
  uint64_t Counter(uint32_t counter) const;
  // Entries of the table of flows; nullopt when the kernel does not tell.
  std::optional<uint64_t> FlowsThere() const;
  void CountForgottenFlows();
  void FollowEvents(const model::RecordBatch& batch, size_t first);
  void RefreshLayouts(int64_t now);
  Status SetLayout(int32_t pid, const ProcessLayout& layout);
  bool TryLayout(int32_t pid, int64_t since_mono_ns, int64_t now);
  Status LoadWalk();
  // What a program of the walk tells of the process's threads.
  Result<std::string> Walk(const char* program, int32_t pid) const;

  std::unique_ptr<KernelObject> hot;
  std::unique_ptr<KernelObject> walk;
  std::vector<KernelObject> optional;
  std::unique_ptr<ring_buffer, FreeRing> ring;
  std::vector<model::Capability> capabilities;
  void ForgetLayout(int32_t pid, int64_t at_mono_ns);
  // Tells the threads that their copies of layouts are old.
  void LayoutsChanged();

  std::map<int32_t, ProcessLayout> layouts;
  std::map<int32_t, int64_t> layouts_set_mono_ns;  // when this side last wrote it into the kernel's table
  uint32_t layouts_version = 0;
  std::map<int32_t, PendingLayout> pending;
  std::set<int32_t> followed;
  uint64_t threads_not_followed = 0;
  uint64_t layouts_full = 0;  // found no room in the kernel's table
  uint64_t undecodable = 0;
  uint32_t flows_max = 0;
  uint64_t flows_forgotten = 0;
  model::RecordBatch* batch = nullptr;  // during Drain
};

Status KernelProbes::State::LoadHot(const KernelProbesOptions& options) {
  const int cpus = libbpf_num_possible_cpus();
  const uint32_t slots = PowerOfTwoFrom(static_cast<uint32_t>(std::max(cpus, 1)));
  size_t elf_bytes = 0;
  const void* elf = hot_bpf__elf_bytes(&elf_bytes);
  auto loaded = KernelObject::Load("tailspan_hot", elf, elf_bytes, nullptr, [&](KernelObject& object) -> Status {
    size_t bytes = 0;
    auto* constants = static_cast<hot_bpf::hot_bpf__rodata*>(object.Constants(&bytes));
    TAILSPAN_CHECK(constants && bytes >= sizeof *constants);
    constants->threshold_ns = static_cast<uint64_t>(options.threshold_ns);
    constants->gil_threshold_ns = static_cast<uint64_t>(options.gil_threshold_ns);
    constants->flush_ns = static_cast<uint64_t>(options.flush_ns);
    constants->drop_per_mille = options.drop_per_mille;
    constants->cpu_mask = slots - 1;
    if (bpf_map__set_max_entries(object.FindMap("cpu_history"), slots) != 0 ||
        bpf_map__set_max_entries(object.FindMap("flows"), options.flows_max) != 0 ||
        bpf_map__set_max_entries(object.FindMap("records"), options.ring_buffer_bytes) != 0)
      return base::Error{base::Code::kInvalidArgument, "the ring buffer's size must be a power of two", EINVAL};
    return {};
  });
  if (!loaded) return std::move(loaded).error();
  hot = std::make_unique<KernelObject>(std::move(loaded).value());
  flows_max = options.flows_max;
  for (const std::string& comm : options.excluded_comms) {
    char key[kWireCommBytes] = {};
    comm.copy(key, sizeof key - 1);
    const uint32_t one = 1;
    if (bpf_map_update_elem(hot->MapFd("excluded"), key, &one, BPF_ANY) != 0)
      return base::OsError(errno, "too many excluded commands");
  }
  return hot->Attach();
}

Status KernelProbes::State::LoadWalk() {
  size_t elf_bytes = 0;
  const void* elf = thread_walk_bpf__elf_bytes(&elf_bytes);
  auto loaded = KernelObject::Load("tailspan_walk", elf, elf_bytes, hot.get(), {});
  if (!loaded) return std::move(loaded).error();
  walk = std::make_unique<KernelObject>(std::move(loaded).value());
  return {};
}

Result<std::string> KernelProbes::State::Walk(const char* program, int32_t pid) const {
  const uint32_t zero = 0, tgid = static_cast<uint32_t>(pid);
  if (bpf_map_update_elem(walk->MapFd("walked_process"), &zero, &tgid, BPF_ANY) != 0)
    return base::OsError(errno, "no walk over threads");
  return walk->ReadTasks(program);
}

Status KernelProbes::State::TryOptional(const OptionalSignal& signal, const KernelProbesOptions& options) {
  if (std::find(options.signals_off.begin(), options.signals_off.end(), signal.name) != options.signals_off.end() ||
      (signal.is_cpu_clock && options.sample_hz == 0))
    return base::Error{base::Code::kUnavailable, "switched off by an option", 0};
  size_t elf_bytes = 0;
  const void* elf = signal.elf(&elf_bytes);
  auto loaded =
      KernelObject::Load(fmt::format("tailspan_{}", signal.name).substr(0, 15), elf, elf_bytes, hot.get(), {});
  if (!loaded) return std::move(loaded).error();
  Status status = signal.is_cpu_clock ? loaded->AttachCpuClock(options.sample_hz) : loaded->Attach();
  if (status) optional.push_back(std::move(loaded).value());
  return status;
}

void KernelProbes::State::SetCapability(const std::string& signal, const Status& status, const char* remedy) {
  model::Capability capability{signal, status.ok(), {}, {}};
  if (!status) {
    capability.reason = status.error().message;
    if (status.error().code != base::Code::kUnavailable) capability.remedy = RemedyOf(status.error(), remedy);
  }
  capabilities.push_back(std::move(capability));
}

void KernelProbes::State::LoadOptional(const KernelProbesOptions& options) {
  for (const OptionalSignal& signal : kOptionalSignals) {
    const bool has_file = std::any_of(capabilities.begin(), capabilities.end(), [](const auto& capability) {
      return capability.signal == kFaultFile && capability.on;
    });
    if (has_file && signal.name == kFaultAddress) continue;  // the file tells more: no lack to report
    SetCapability(signal.name, TryOptional(signal, options), signal.remedy);
  }
}

uint64_t KernelProbes::State::Counter(uint32_t counter) const {
  std::vector<uint64_t> per_cpu(static_cast<size_t>(std::max(libbpf_num_possible_cpus(), 1)));
  if (bpf_map_lookup_elem(hot->MapFd("counters"), &counter, per_cpu.data()) != 0) return 0;
  uint64_t sum = 0;
  for (uint64_t n : per_cpu) sum += n;
  return sum;
}

std::optional<uint64_t> KernelProbes::State::FlowsThere() const {
  constexpr uint32_t kBatchRows = 4096;
  std::vector<WireFlow> keys(kBatchRows);
  std::vector<WireFlowState> values(kBatchRows);
  uint64_t there = 0;
  uint32_t from = 0, next = 0;
  for (bool is_first = true;; is_first = false) {
    uint32_t count = kBatchRows;
    const int failed = bpf_map_lookup_batch(hot->MapFd("flows"), is_first ? nullptr : &from, &next, keys.data(),
                                            values.data(), &count, nullptr);
    if (failed != 0 && errno != ENOENT) return std::nullopt;
    there += count;
    if (failed != 0) return there;  // that was the end
    from = next;
  }
}

// A full table makes room without a word. What was put in and neither taken out nor is there was pushed out; what comes
// and goes while we count can only make it less. Looked for when the table may have been full at all.
void KernelProbes::State::CountForgottenFlows() {
  const uint64_t added = Counter(kWireFlowsAdded);
  if (added <= Counter(kWireFlowsRemoved) + flows_max / 2) return;
  const std::optional<uint64_t> there = FlowsThere();
  if (!there) return;
  const uint64_t left = *there + Counter(kWireFlowsRemoved);
  if (added > left) flows_forgotten = std::max(flows_forgotten, added - left);
}

KernelProbes::KernelProbes(std::unique_ptr<State> state) : state_(std::move(state)) {}
KernelProbes::~KernelProbes() = default;

Result<std::unique_ptr<KernelProbes>> KernelProbes::Open(const KernelProbesOptions& options) {
  auto state = std::make_unique<State>();
  // The kernel's records have the initial namespace's numbers, which name other processes here, or none.
  if (!IsInitialPidNamespace()) return base::Error{base::Code::kUnsupported, kPidNamespaceObstacle, 0};
  if (Status status = state->LoadHot(options); !status) return std::move(status).error();
  // The process that `run` starts is taken in by it as well.
  if (Status status = state->LoadWalk(); !status) return std::move(status).error();
  state->capabilities.push_back({"threads", true, {}, {}});
  state->capabilities.push_back({"existing_threads", true, {}, {}});
  state->LoadOptional(options);
  const auto read = [](void* context, void* data, size_t bytes) {
    auto* self = static_cast<State*>(context);
    if (!DecodeRecord(data, bytes, self->batch)) ++self->undecodable;
    return 0;
  };
  state->ring.reset(ring_buffer__new(state->hot->MapFd("records"), read, state.get(), nullptr));
  if (!state->ring) return base::OsError(errno, "the ring buffer cannot be mapped");
  return std::unique_ptr<KernelProbes>(new KernelProbes(std::move(state)));
}

std::vector<model::Capability> KernelProbes::Probe(const KernelProbesOptions& options) {
  if (auto probes = Open(options); probes)
    return (*probes)->capabilities();
  else {
    std::vector<model::Capability> off;
    const char* remedy =
        IsInitialPidNamespace() ? "a kernel of 5.18 or later with BTF (CONFIG_DEBUG_INFO_BTF)" : kPidNamespaceRemedy;
    const std::string& reason = probes.error().message;
    off.push_back({"threads", false, reason, RemedyOf(probes.error(), remedy)});
    for (const OptionalSignal& signal : kOptionalSignals)
      off.push_back({signal.name, false, "needs the signal threads", off.front().remedy});
    return off;
  }
}

Status KernelProbes::FollowProcess(int32_t pid) {
  std::set<int32_t> taken, failed;
  // A thread that is made while we look is followed from its fork if its maker already is; so look until nothing is
  // new.
  for (bool is_new = true; is_new;) {
    is_new = false;
    const std::vector<int32_t> there = ThreadsOf(pid);
    const bool is_known = std::all_of(there.begin(), there.end(),
                                      [&](int32_t tid) { return taken.contains(tid) || failed.contains(tid); });
    if (is_known) break;
    auto told = state_->Walk("TakeIn", pid);
    if (!told) return std::move(told).error();
    for (size_t at = 0; at + sizeof(int32_t) <= told->size(); at += sizeof(int32_t)) {
      int32_t tid = 0;
      std::memcpy(&tid, told->data() + at, sizeof tid);
      is_new |= taken.insert(tid).second;
    }
    const std::vector<int32_t> now_there = ThreadsOf(pid);
    for (const int32_t tid : there) {
      const bool is_gone = std::find(now_there.begin(), now_there.end(), tid) == now_there.end();
      if (!is_gone && !taken.contains(tid)) is_new |= failed.insert(tid).second;
    }
  }
  if (taken.empty() && failed.empty())
    return base::Error{base::Code::kNotFound, fmt::format("process {} is not there", pid), ESRCH};
  state_->threads_not_followed += failed.size();
  if (taken.empty())
    return base::Error{base::Code::kPermission, fmt::format("process {} cannot be followed", pid), EPERM};
  state_->followed.insert(pid);
  const int64_t now = base::MonoNowNs();
  state_->pending[pid] = {now, now};
  return {};
}

Status KernelProbes::SetProcessLayout(int32_t pid, const ProcessLayout& layout) {
  ProcessLayout merged = state_->layouts[pid];
  if (layout.has_context) {
    merged.has_context = true;
    merged.tls_offset = layout.tls_offset;
  }
  if (layout.gil_high) {
    merged.gil_low = layout.gil_low;
    merged.gil_high = layout.gil_high;
  }
  if (layout.gil_holder_address) {
    merged.gil_holder_address = layout.gil_holder_address;
    merged.gil_holder_tid_offset = layout.gil_holder_tid_offset;
    merged.gil_holder_by_pthread = layout.gil_holder_by_pthread;
  }
  return state_->SetLayout(pid, merged);
}

Status KernelProbes::State::SetLayout(int32_t pid, const ProcessLayout& layout) {
  WireLayout wire{};
  wire.tls_offset = layout.tls_offset;
  wire.gil_low = layout.gil_low;
  wire.gil_high = layout.gil_high;
  wire.holder_address = layout.gil_holder_address;
  wire.holder_tid_offset = layout.gil_holder_tid_offset;
  if (layout.has_context) wire.flags |= kWireHasContext;
  if (layout.gil_high) wire.flags |= kWireHasGil;
  if (layout.gil_holder_address) wire.flags |= kWireHasHolder;
  if (layout.gil_holder_by_pthread) wire.flags |= kWireHolderByPthread;
  const uint32_t key = static_cast<uint32_t>(pid);
  if (bpf_map_update_elem(hot->MapFd("layouts"), &key, &wire, BPF_ANY) != 0) {
    ++layouts_full;
    return base::OsError(errno, fmt::format("no room for the layout of process {}", pid));
  }
  LayoutsChanged();
  layouts[pid] = layout;
  layouts_set_mono_ns[pid] = base::MonoNowNs();
  return {};
}

// The process had another memory from `at` on. The kernel dropped its layout then; if this side wrote it later, not
// knowing, it is dropped again.
void KernelProbes::State::ForgetLayout(int32_t pid, int64_t at_mono_ns) {
  layouts.erase(pid);
  const auto set = layouts_set_mono_ns.find(pid);
  if (set == layouts_set_mono_ns.end()) return;
  const uint32_t key = static_cast<uint32_t>(pid);
  if (set->second >= at_mono_ns && bpf_map_delete_elem(hot->MapFd("layouts"), &key) == 0) LayoutsChanged();
  layouts_set_mono_ns.erase(set);
}

void KernelProbes::State::LayoutsChanged() {
  const uint32_t zero = 0;
  ++layouts_version;
  TAILSPAN_CHECK(bpf_map_update_elem(hot->MapFd("layouts_version"), &zero, &layouts_version, BPF_ANY) == 0);
}

size_t KernelProbes::Drain(model::RecordBatch* batch) {
  state_->batch = batch;
  const size_t first = batch->process_events.size();
  const int consumed = ring_buffer__consume(state_->ring.get());
  state_->batch = nullptr;
  state_->FollowEvents(*batch, first);
  state_->RefreshLayouts(base::MonoNowNs());
  return consumed > 0 ? static_cast<size_t>(consumed) : 0;
}

// Keeps the set of followed processes, and queues those whose memory is new for a look at their layout.
void KernelProbes::State::FollowEvents(const model::RecordBatch& records, size_t first) {
  for (size_t i = first; i < records.process_events.size(); ++i) {
    const model::ProcessEvent& event = records.process_events[i];
    switch (event.kind) {
      case model::ProcessEventKind::kFork: {
        followed.insert(event.pid);
        const auto parent = layouts.find(event.parent_pid);
        if (parent != layouts.end()) {
          const ProcessLayout inherited = parent->second;
          const auto set = layouts_set_mono_ns.find(event.parent_pid);
          // The kernel copied what it knew at the fork; what was learned since it has not.
          const bool is_copied = set == layouts_set_mono_ns.end() || set->second < event.at_mono_ns;
          layouts[event.pid] = inherited;
          if (!is_copied) {
            [[maybe_unused]] const Status status = SetLayout(event.pid, inherited);  // fails when the table is full
          }
        }
        if (pending.contains(event.parent_pid)) pending[event.pid] = {event.at_mono_ns, event.at_mono_ns};
        break;
      }
      case model::ProcessEventKind::kExec:
        ForgetLayout(event.pid, event.at_mono_ns);
        pending[event.pid] = {event.at_mono_ns, event.at_mono_ns};
        break;
      case model::ProcessEventKind::kExit:
        followed.erase(event.pid);
        ForgetLayout(event.pid, event.at_mono_ns);
        pending.erase(event.pid);
        break;
      case model::ProcessEventKind::kThread:
      case model::ProcessEventKind::kThreadExit:
        break;
    }
  }
}

ProbeLosses KernelProbes::Losses() const {
  ProbeLosses losses;
  const State& state = *state_;
  losses.ring_full = state.Counter(kWireRingFull);
  losses.ring_full_ns = state.Counter(kWireRingFullNs);
  losses.dropped_on_purpose = state.Counter(kWireDropped);
  losses.dropped_on_purpose_ns = state.Counter(kWireDroppedNs);
  losses.threads_not_followed = state.threads_not_followed + state.Counter(kWireStorageFailed);
  losses.holes = state.Counter(kWireHoles);
  losses.holes_ns = state.Counter(kWireHolesNs);
  losses.repaired = state.Counter(kWireRepaired);
  losses.maps_full = state.Counter(kWireProcessesFull) + state.layouts_full + state.Counter(kWireFlowsFull) +
                     state.Counter(kWireRequestsFull);
  state_->CountForgottenFlows();
  losses.flows_forgotten = state.flows_forgotten;
  losses.contexts_unreadable = state.Counter(kWireContextUnreadable);
  losses.recursion_misses = state.hot->RecursionMisses();
  for (const KernelObject& object : state.optional) losses.recursion_misses += object.RecursionMisses();
  losses.undecodable = state.undecodable;
  losses.records = state.Counter(kWireRecords);
  losses.switches = state.Counter(kWireSwitches);
  return losses;
}

void KernelProbes::PublishLosses() const {
  const ProbeLosses losses = Losses();
  base::LossCounters& global = base::LossCounters::Global();
  global.Set(base::Loss::kRingBufferFull, losses.ring_full);
  global.Set(base::Loss::kKernelDropOnPurpose, losses.dropped_on_purpose);
  global.Set(base::Loss::kKernelThreadUnfollowed, losses.threads_not_followed);
  global.Set(base::Loss::kKernelRecordHole, losses.holes + losses.recursion_misses + losses.undecodable);
  global.Set(base::Loss::kKernelMapFull, losses.maps_full);
  global.Set(base::Loss::kKernelFlowForgotten, losses.flows_forgotten);
  global.Set(base::Loss::kKernelContextUnreadable, losses.contexts_unreadable);
}

const std::vector<model::Capability>& KernelProbes::capabilities() const { return state_->capabilities; }

void KernelProbes::RunTime(uint64_t* ns, uint64_t* runs) const {
  *ns = *runs = 0;
  state_->hot->RunTime(ns, runs);
}

void KernelProbes::State::RefreshLayouts(int64_t now) {
  size_t tries = 0;
  for (auto one = pending.begin(); one != pending.end();) {
    PendingLayout& wait = one->second;
    if (wait.next_mono_ns > now || tries >= kLayoutTriesPerDrain) {
      ++one;
      continue;
    }
    ++tries;
    wait.next_mono_ns = now + (now - wait.since_mono_ns < kLayoutEagerNs ? kLayoutFirstRetryNs : kLayoutLastRetryNs);
    one = TryLayout(one->first, wait.since_mono_ns, now) ? pending.erase(one) : std::next(one);
  }
}

// Looks for what is still unknown of a process's layout. True when there is nothing more to look for.
bool KernelProbes::State::TryLayout(int32_t pid, int64_t since_mono_ns, int64_t now) {
  const auto known = layouts.find(pid);
  ProcessLayout layout = known == layouts.end() ? ProcessLayout{} : known->second;
  bool is_new = false, is_starting = false;
  if (!layout.gil_high || !layout.gil_holder_address) {
    if (const auto runtime = FindPythonRuntime(pid)) {
      is_starting = runtime->is_starting;
      is_new = !layout.gil_high || runtime->holder_address;
      layout.gil_low = runtime->low;
      layout.gil_high = runtime->high;
      layout.gil_holder_address = runtime->holder_address;
      layout.gil_holder_tid_offset = runtime->holder_tid_offset;
      layout.gil_holder_by_pthread = runtime->holder_by_pthread;
    }
  }
  if (!layout.has_context) {
    if (const auto context = ReadProcessContext(pid); context && context->has_tls_offset) {
      layout.has_context = true;
      layout.tls_offset = context->tls_offset;
      is_new = true;
    }
  }
  if (is_new) {
    if (Status status = SetLayout(pid, layout); !status) return true;  // counted as a full map by Losses
  }
  const bool is_over = now - since_mono_ns > kLayoutGiveUpNs;
  if (layout.gil_high && layout.has_context) return !is_starting || is_over;
  return !layout.gil_high && !layout.has_context && is_over;
}

void KernelProbes::DrainOpenWindows(model::RecordBatch* batch) {
  for (const int32_t pid : state_->followed) {
    auto told = state_->Walk("TellOpen", pid);
    if (!told) continue;
    for (size_t at = 0; at + sizeof(WireOpenThread) <= told->size(); at += sizeof(WireOpenThread)) {
      WireOpenThread one;
      std::memcpy(&one, told->data() + at, sizeof one);
      AppendOpenWindow(pid, one, batch);
    }
  }
}

}  // namespace tailspan::probe
