#include "cli/process_watch.h"

#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "base/clock.h"
#include "probe/process_context.h"

namespace tailspan::cli {
namespace {

using model::ProcessEventKind;
using model::SocketAddress;

constexpr int64_t kSuspendMinNs = 100'000'000;
constexpr size_t kCommandBytesMax = 256;
constexpr int64_t kLookEveryNs = 50'000'000;
constexpr int64_t kLookSlowlyEveryNs = 1'000'000'000;
constexpr int64_t kLookFastForNs = 20'000'000'000;  // a Python app imports for seconds before it sets itself up

std::string ReadFile(const std::string& path, size_t bytes_max = 1 << 20) {
  std::ifstream in(path, std::ios::binary);
  std::string out(bytes_max, '\0');
  in.read(out.data(), static_cast<std::streamsize>(bytes_max));
  out.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return out;
}

std::string Proc(int32_t pid, const char* name) { return "/proc/" + std::to_string(pid) + "/" + name; }

std::vector<int32_t> ThreadsOf(int32_t pid) {
  std::vector<int32_t> threads;
  DIR* folder = opendir(Proc(pid, "task").c_str());
  if (!folder) return threads;
  while (const dirent* entry = readdir(folder)) {
    if (const int32_t thread = std::atoi(entry->d_name); thread > 0) threads.push_back(thread);
  }
  closedir(folder);
  return threads;
}

int64_t TicksToMonoNs(uint64_t ticks_since_boot) {
  // /proc counts from boot (CLOCK_BOOTTIME); suspends are the difference to CLOCK_MONOTONIC. The two are never read at
  // one instant: a difference below any suspend's changes nothing, so that a process keeps its key.
  timespec boot, mono;
  clock_gettime(CLOCK_BOOTTIME, &boot);
  clock_gettime(CLOCK_MONOTONIC, &mono);
  int64_t measured_ns = (int64_t{boot.tv_sec} - mono.tv_sec) * 1'000'000'000 + (boot.tv_nsec - mono.tv_nsec);
  static std::atomic<int64_t> known_ns{0};
  int64_t suspended_ns = known_ns.load();
  if (std::abs(measured_ns - suspended_ns) > kSuspendMinNs) known_ns = suspended_ns = measured_ns;
  static const int64_t tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  return static_cast<int64_t>(ticks_since_boot) * tick_ns - suspended_ns;
}

// "0100007F:1F90" of /proc/net/tcp, or the 32-digit form of tcp6: words in host order.
bool ParseProcAddress(std::string_view text, SocketAddress* out) {
  size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return false;
  uint32_t words[4] = {};
  for (size_t i = 0; i < colon / 8; ++i) {
    auto word = text.substr(i * 8, 8);
    if (std::from_chars(word.data(), word.data() + 8, words[i], 16).ec != std::errc()) return false;
  }
  unsigned port = 0;
  if (std::from_chars(text.data() + colon + 1, text.data() + text.size(), port, 16).ec != std::errc()) return false;
  *out = model::MakeSocketAddress(colon == 8 ? AF_INET : AF_INET6, reinterpret_cast<const uint8_t*>(words),
                                  static_cast<uint16_t>(port));
  return true;
}

// The ends of those TCP sockets of the process's network namespace that are wanted, by inode. A host may have any
// number of others. Columns by proc(5): sl local remote st tx:rx tr:tm retrnsmt uid timeout inode.
std::map<uint64_t, std::pair<SocketAddress, SocketAddress>> ReadTcpTable(int32_t pid,
                                                                         const std::set<uint64_t>& wanted) {
  constexpr unsigned kListening = 0x0A;
  std::map<uint64_t, std::pair<SocketAddress, SocketAddress>> out;
  for (const char* name : {"net/tcp", "net/tcp6"}) {
    std::unique_ptr<FILE, int (*)(FILE*)> table(std::fopen(Proc(pid, name).c_str(), "re"), std::fclose);
    char line[512];
    while (table && out.size() < wanted.size() && std::fgets(line, sizeof line, table.get())) {
      char local[40], remote[40];
      unsigned state = 0;
      unsigned long long inode = 0;
      const int fields = std::sscanf(line, "%*d: %39s %39s %x %*s %*s %*s %*u %*u %llu", local, remote, &state, &inode);
      SocketAddress a, b;
      if (fields != 4 || !wanted.contains(inode) || !ParseProcAddress(local, &a) || !ParseProcAddress(remote, &b))
        continue;
      if (state == kListening) b = {};
      out[inode] = {a, b};
    }
  }
  return out;
}

}  // namespace

std::optional<model::ProcessInfo> ReadProcessInfo(int32_t pid) {
  std::string stat = ReadFile(Proc(pid, "stat"));
  size_t open = stat.find('('), close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  model::ProcessInfo info;
  info.key.pid = pid;
  info.comm = stat.substr(open + 1, close - open - 1);
  std::istringstream fields(stat.substr(close + 1));
  std::string state;
  fields >> state >> info.parent_pid;
  std::string skipped;
  for (int i = 5; i < 22; ++i) fields >> skipped;  // field 22 of proc(5) is starttime
  uint64_t start_ticks = 0;
  fields >> start_ticks;
  info.key.start_mono_ns = TicksToMonoNs(start_ticks);
  info.command = ReadFile(Proc(pid, "cmdline"), kCommandBytesMax);
  std::replace(info.command.begin(), info.command.end(), '\0', ' ');
  while (!info.command.empty() && info.command.back() == ' ') info.command.pop_back();
  info.cgroup = ReadFile(Proc(pid, "cgroup"), 4096);
  if (size_t end = info.cgroup.find('\n'); end != std::string::npos) info.cgroup.resize(end);
  return info;
}

ProcessWatch::ProcessWatch(probe::KernelProbes* probes, base::LossCounters* loss, uint32_t ring_drop_per_mille)
    : probes_(probes), loss_(loss), ring_drop_per_mille_(ring_drop_per_mille) {}

void ProcessWatch::Add(int32_t pid, model::RecordBatch* batch) {
  auto info = ReadProcessInfo(pid);
  if (!info) return;
  Watched& watched = processes_[pid];
  if (watched.info.key != info->key) watched = {};
  // Known already, as a process that attaching finds a second time: what it told of itself stays.
  info->runtime = watched.info.runtime;
  info->has_loop_ring = watched.info.has_loop_ring;
  watched.info = *info;
  watched.gone = false;
  watched.look_until_mono_ns = base::MonoNowNs() + kLookFastForNs;
  watched.next_look_mono_ns = 0;
  batch->processes.push_back(*info);
}

void ProcessWatch::Update(model::RecordBatch* batch) {
  // By index: Add may grow the batch.
  for (size_t i = 0; i < batch->process_events.size(); ++i) {
    model::ProcessEvent event = batch->process_events[i];
    if (event.kind == ProcessEventKind::kFork || event.kind == ProcessEventKind::kExec) {
      // An exec'd program has another context and ring; the old ring is drained once more below.
      auto it = processes_.find(event.pid);
      if (it != processes_.end() && event.kind == ProcessEventKind::kExec) {
        DrainRing(&it->second, batch);
        it->second.ring.reset();
        it->second.info.runtime.clear();
        it->second.info.has_loop_ring = false;
      }
      Add(event.pid, batch);
    } else if (event.kind == ProcessEventKind::kExit) {
      auto it = processes_.find(event.pid);
      if (it == processes_.end()) continue;
      it->second.gone = true;
      it->second.info.end_mono_ns = event.at_mono_ns;
      batch->processes.push_back(it->second.info);
    }
  }
  if (!probes_) FindChildren(false, batch);
  int64_t now_ns = base::MonoNowNs();
  for (auto it = processes_.begin(); it != processes_.end();) {
    Watched& watched = it->second;
    if (!watched.gone && now_ns >= watched.next_look_mono_ns && !watched.ring) {
      watched.next_look_mono_ns = now_ns + (now_ns < watched.look_until_mono_ns ? kLookEveryNs : kLookSlowlyEveryNs);
      Look(it->first, &watched, batch);
    }
    DrainRing(&watched, batch);
    it = watched.gone ? processes_.erase(it) : std::next(it);
  }
}

// What its ring tells of a descriptor, the scan need not: it could only tell it later.
void ProcessWatch::DrainRing(Watched* watched, model::RecordBatch* batch) {
  if (!watched->ring) return;
  const size_t before = batch->sockets.size();
  watched->ring->Drain(batch);
  for (size_t i = before; i < batch->sockets.size(); ++i) {
    const model::SocketInfo& info = batch->sockets[i];
    if (info.inode && (info.remote.family || !info.local.family)) watched->sockets[info.fd] = info.inode;
  }
}

// Without the kernel's fork records: by reading who is whose child. Each thread has its own children.
void ProcessWatch::FindChildren(bool of_all_threads, model::RecordBatch* batch) {
  std::vector<int32_t> found;
  for (auto& [pid, watched] : processes_) {
    if (kill(pid, 0) != 0 && errno == ESRCH) {
      watched.gone = true;
      continue;
    }
    std::vector<int32_t> threads{pid};
    if (of_all_threads) threads = ThreadsOf(pid);
    for (int32_t thread : threads) {
      std::istringstream list(ReadFile(Proc(pid, "task/") + std::to_string(thread) + "/children"));
      int32_t child = 0;
      while (list >> child) {
        if (!processes_.count(child)) found.push_back(child);
      }
    }
  }
  for (int32_t pid : found) Add(pid, batch);
}

void ProcessWatch::Look(int32_t pid, Watched* watched, model::RecordBatch* batch) {
  auto context = probe::ReadProcessContext(pid);
  if (!context.ok()) return;
  if (!context->runtime.empty() && watched->info.runtime != context->runtime) {
    watched->info.runtime = context->runtime;
    batch->processes.push_back(watched->info);
  }
  if (watched->ring || context->ring_fd < 0) return;
  auto ring = probe::LoopRingReader::Open(pid, *context, loss_);
  if (!ring.ok()) return;
  // Between fork and exec a child shows its parent's ring.
  if (!rings_.insert(ring->identity()).second) return;
  watched->ring.emplace(std::move(*ring));
  watched->ring->DropOnPurpose(ring_drop_per_mille_);
  watched->info.has_loop_ring = true;
  batch->processes.push_back(watched->info);
}

void ProcessWatch::UpdateSlow(model::RecordBatch* batch) {
  if (!probes_) FindChildren(true, batch);
  for (auto& [pid, watched] : processes_) {
    if (!watched.gone) ScanSockets(pid, &watched, batch);
  }
}

void ProcessWatch::ScanSockets(int32_t pid, Watched* watched, model::RecordBatch* batch) {
  std::map<int, uint64_t> now;
  std::string folder = Proc(pid, "fd");
  DIR* dir = opendir(folder.c_str());
  if (!dir) return;
  int64_t at_ns = base::MonoNowNs();  // before the look, so that it is not taken for news of a socket opened meanwhile
  std::set<uint64_t> news;
  while (dirent* entry = readdir(dir)) {
    char target[64];
    ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
    if (n <= 8 || std::strncmp(target, "socket:[", 8) != 0) continue;
    target[n] = 0;
    int fd = std::atoi(entry->d_name);
    uint64_t inode = std::strtoull(target + 8, nullptr, 10);
    now[fd] = inode;
    auto known = watched->sockets.find(fd);
    if (known == watched->sockets.end() || known->second != inode) news.insert(inode);
  }
  closedir(dir);
  if (!news.empty()) {
    auto table = ReadTcpTable(pid, news);
    for (const auto& [fd, inode] : now) {
      auto known = watched->sockets.find(fd);
      auto found = table.find(inode);
      bool same = known != watched->sockets.end() && known->second == inode;
      if (same || found == table.end()) continue;
      batch->sockets.push_back({pid, fd, at_ns, inode, found->second.first, found->second.second, false});
    }
  }
  watched->sockets = std::move(now);
}

}  // namespace tailspan::cli
