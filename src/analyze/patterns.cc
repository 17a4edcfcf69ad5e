#include "analyze/patterns.h"

#include "base/result.h"

namespace tailspan::analyze {
namespace {

using model::BlameKind;
using model::Cause;

constexpr BlameKind kAny = BlameKind::kNone;

constexpr Pattern kPatterns[] = {
    {Cause::kOnCpu, BlameKind::kProcess, "slow-peer", "waits for {}, which computes",
     "profile {}; ask it for less, cache its answers, or give it more CPU", "which function of {} was on the CPU"},
    {Cause::kOnCpu, kAny, "own-cpu", "computes",
     "profile this step; cache its result, make its input smaller, or move it to another process",
     "which function was on the CPU (CPU sampling with Python frames)"},
    {Cause::kRunQueue, BlameKind::kProcess, "noisy-neighbour", "is ready, but {} has the CPU",
     "give the service its own CPUs (Guaranteed QoS, cpuset) or fewer threads to {}", ""},
    {Cause::kRunQueue, kAny, "cpu-shortage", "is ready, but all CPUs are busy with {}",
     "more CPUs or fewer runnable threads; admit fewer requests at once", "who had the CPU, where it is not named"},
    {Cause::kCpuThrottled, kAny, "cpu-quota", "is stopped by the cgroup's CPU quota", "raise or remove the CPU limit",
     "nr_throttled of the cgroup"},
    {Cause::kGil, kAny, "gil-holder", "waits for the GIL, held by {}",
     "move {} out of this process (process pool, other service) or into code that lets the GIL go",
     "which function held the GIL (CPU sampling with Python frames)"},
    {Cause::kLock, kAny, "lock-holder", "waits for a lock that {} holds",
     "hold the lock for less work, or one instance for each worker (e.g. one tokenizer a thread)",
     "which lock it is, by name"},
    {Cause::kEventLoop, kAny, "event-loop-block", "is ready, but the event loop is busy with {}",
     "take blocking or long work in {} off the loop (asyncio.to_thread, an async client, smaller steps)",
     "which function of the step ran (CPU sampling with Python frames)"},
    {Cause::kQueue, kAny, "executor-backlog", "waits for a free worker, all busy with {}",
     "more workers, or shed and bound what is queued", "the queue's length over time"},
    {Cause::kPageFault, kAny, "cold-pages", "reads pages of {} back from disk",
     "keep {} in memory (warm-up read, mlock, more memory) or on a faster disk", "page-cache evictions of that file"},
    {Cause::kDiskRead, kAny, "disk-read", "reads {} from disk",
     "cache {}, read it ahead, or give the disk more throughput", "queue depth of the block device"},
    {Cause::kDiskWrite, kAny, "disk-write", "writes {} to disk",
     "write in the background, batch fsync, or give the disk more throughput", "queue depth of the block device"},
    {Cause::kNetConnect, kAny, "slow-connect", "connects to {}",
     "keep connections open and reuse the client; check the peer's accept queue", ""},
    {Cause::kDns, kAny, "slow-dns", "resolves a name by {}", "a local DNS cache; fewer search domains (ndots)", ""},
    {Cause::kNetSend, kAny, "send-blocked", "cannot send to {}: send buffer or device queue is full",
     "smaller bodies or compression; raise the link's or qdisc's rate; check that {} reads",
     "whether the device's queue or the peer's window was full"},
    {Cause::kNetRecv, kAny, "slow-peer", "waits for an answer of {}",
     "look into {} (trace it too, or record it with tailspan); cap it by a timeout or hedge the call",
     "spans or kernel records of {}: it is not traced"},
    {Cause::kNetEdge, kAny, "network-edge", "is between client and server of a call to {}",
     "check the network and the server's accept queue", "packet capture on both ends"},
    {Cause::kRetransmit, kAny, "packet-loss", "waits for packets to {} that were lost and sent again",
     "find who drops them (link, queue, firewall, receiver's backlog); lower tcp_rto_min on short paths",
     "where the packets were dropped"},
    {Cause::kGpuSync, kAny, "gpu-wait", "waits for the GPU", "batch less, or split long kernels",
     "GPU activity records"},
    {Cause::kGpuCopy, kAny, "gpu-copy", "copies between host and GPU", "pinned memory, asynchronous copies",
     "GPU activity records"},
    {Cause::kGpuLaunch, kAny, "gpu-launch", "waits to launch GPU work", "graphs, fewer small kernels",
     "GPU activity records"},
    {Cause::kGc, kAny, "gc-pause", "stands still for garbage collection",
     "gc.freeze() after start, higher thresholds, fewer cycles", ""},
    {Cause::kSleep, kAny, "timed-sleep", "sleeps on a timer (backoff, rate limit, polling)",
     "look for retries and rate limits: client-side limiter, jitter, a retry budget",
     "the reason for the sleep (retry events, status 429)"},
    {Cause::kIpc, kAny, "ipc-wait", "waits for {} over a pipe or local socket", "look into {}", ""},
    {Cause::kChildProcess, kAny, "child-process", "waits for a child, {}",
     "keep the process running instead of starting one a request", ""},
    {Cause::kIrqSteal, kAny, "stolen-cpu", "has its CPU taken by interrupts or the hypervisor",
     "another host or a dedicated CPU", "steal time of the host"},
    {Cause::kStopped, kAny, "stopped", "was stopped (signal, tracer or freezer)", "find who stops the process", ""},
    {Cause::kUnexplained, kAny, "unexplained", "spends time that no signal explains",
     "tailspan doctor says which signals are off on this host", "the signals that are off or were lost"},
};

// In a sentence about this cause, a party that nothing names.
const char* UnknownParty(Cause cause) {
  switch (cause) {
    case Cause::kPageFault:
    case Cause::kDiskRead:
    case Cause::kDiskWrite:
      return "an unidentified file";
    case Cause::kNetConnect:
    case Cause::kDns:
    case Cause::kNetSend:
    case Cause::kNetRecv:
    case Cause::kNetEdge:
    case Cause::kRetransmit:
      return "an unidentified peer";
    case Cause::kIpc:
    case Cause::kChildProcess:
      return "an unidentified process";
    case Cause::kGil:
    case Cause::kLock:
      return "unidentified code";
    default:
      return "unidentified work";
  }
}

}  // namespace

std::string WithParty(const char* text, model::Cause cause, const model::Blame& blame) {
  const std::string party = blame.kind == BlameKind::kNone ? UnknownParty(cause) : model::BlameText(blame);
  std::string out = text;
  for (size_t at = out.find("{}"); at != std::string::npos; at = out.find("{}", at + party.size())) {
    out.replace(at, 2, party);  // a party's own name may hold {} too
  }
  return out;
}

const Pattern& PatternFor(model::Cause cause, model::BlameKind blame) {
  for (const Pattern& pattern : kPatterns) {
    if (pattern.cause == cause && (pattern.blame == kAny || pattern.blame == blame)) return pattern;
  }
  base::CheckFailed("every cause has a pattern", __FILE__, __LINE__);
}

}  // namespace tailspan::analyze
