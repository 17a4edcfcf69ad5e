#include "analyze/replay_steps.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <unordered_map>

namespace tailspan::analyze {
namespace {

using model::Cause;
using model::LedgerPiece;
using model::TraceLedger;

constexpr size_t kLocksMax = 256;  // lock servers; further locks are not modelled

// A blocking wait inside a step keeps the loop; a wait that asyncio can suspend at does not.
bool KeepsLoop(Cause cause) {
  switch (cause) {
    case Cause::kOnCpu:
    case Cause::kCpuThrottled:
    case Cause::kPageFault:
    case Cause::kDiskRead:
    case Cause::kDiskWrite:
    case Cause::kGc:
    case Cause::kIrqSteal:
    case Cause::kStopped:
      return true;
    default:
      return false;
  }
}

bool IsWork(Cause cause) { return cause == Cause::kOnCpu || cause == Cause::kGc; }

// A followed peer's work is a delay to us: it holds neither our loop nor our GIL.
Cause ReplayedAs(const LedgerPiece& piece) {
  bool of_peer = piece.cause == Cause::kOnCpu && piece.blame.kind == model::BlameKind::kProcess;
  return of_peer ? Cause::kNetRecv : piece.cause;
}

struct PathInfo {
  bool loop = false, gil = false, executor = false;
  uint16_t name = 0;                                                              // index into ReplayPlan::names
  int lock = -1;                                                                  // server
  std::array<std::vector<double>, static_cast<size_t>(Cause::kCount)> demand_ns;  // per request that has it
  std::array<double, static_cast<size_t>(Cause::kCount)> cap_ns{};
};

double QuantileOf(std::vector<double>* values, size_t zeros, double p) {
  const size_t n = values->size() + zeros;
  const auto k = static_cast<size_t>(std::ceil(p * static_cast<double>(n) * (1 - 1e-12)));
  if (k <= zeros || values->empty()) return 0;
  const auto at = values->begin() + static_cast<std::ptrdiff_t>(k - zeros - 1);
  std::nth_element(values->begin(), at, values->end());
  return *at;
}

class Planner {
 public:
  Planner(const std::vector<TraceLedger>& ledgers, const ReplayOptions& options)
      : ledgers_(ledgers), options_(options) {}

  ReplayPlan Run() {
    for (const TraceLedger& ledger : ledgers_) Learn(ledger);
    AssignServers();
    if (options_.cap_demands) SetCaps();
    plan_.slots.assign(kServerFirstLock + locks_.size(), 1);
    plan_.slots[kServerCpu] = std::max(1, options_.cpus);
    plan_.slots[kServerExecutor] = ExecutorSlots();
    for (const TraceLedger& ledger : ledgers_) {
      plan_.step_begin.push_back(plan_.steps.size());
      Compile(ledger);
      if (plan_.steps.size() > kReplayStepsMax) {
        plan_.too_large = true;
        return std::move(plan_);
      }
    }
    plan_.step_begin.push_back(plan_.steps.size());
    return std::move(plan_);
  }

 private:
  void Learn(const TraceLedger& ledger) {
    std::vector<uint32_t>& of = path_of_.emplace_back();
    for (const auto& path : ledger.paths) {
      std::string key;
      for (const auto& name : path) (key += name) += '\x1f';
      const auto [at, fresh] = path_ids_.try_emplace(key, static_cast<uint32_t>(paths_.size()));
      if (fresh) {
        paths_.emplace_back();
        names_.push_back(path.empty() ? ledger.operation : path.back());
        paths_.back().name = NameId(names_.back());
      }
      of.push_back(at->second);
    }
    std::map<std::pair<uint32_t, Cause>, double> demand;
    for (const LedgerPiece& piece : ledger.pieces) {
      PathInfo& path = paths_[of[piece.path]];
      const bool span_blamed = piece.blame.kind == model::BlameKind::kSpan;
      switch (piece.cause) {
        case Cause::kEventLoop:
          path.loop = true;
          if (span_blamed) loop_names_[piece.blame.name] = true;
          break;
        case Cause::kGil:
          path.gil = true;
          if (span_blamed) gil_names_[piece.blame.name] = true;
          break;
        case Cause::kQueue:
          path.executor = true;
          break;
        case Cause::kLock:
          if (span_blamed && locks_.size() < kLocksMax) locks_.try_emplace(piece.blame.name, 0);
          break;
        default:
          break;
      }
      if (!model::IsContention(piece.cause)) {
        demand[{of[piece.path], ReplayedAs(piece)}] += static_cast<double>(piece.end_ns - piece.start_ns);
      }
    }
    for (const auto& [key, ns] : demand) {
      paths_[key.first].demand_ns[static_cast<size_t>(key.second)].push_back(ns);
    }
  }

  uint16_t NameId(const std::string& name) {
    const auto at = name_ids_.find(name);
    if (at != name_ids_.end()) return at->second;
    if (plan_.names.size() >= kReplayNamesMax) return static_cast<uint16_t>(kReplayNamesMax - 1);
    plan_.names.push_back(name);
    return name_ids_[name] = static_cast<uint16_t>(plan_.names.size() - 1);
  }

  void AssignServers() {
    uint16_t next = kServerFirstLock;
    for (auto& [name, server] : locks_) server = next++;
    bool any_gil = false;
    for (const PathInfo& path : paths_) any_gil |= path.gil;
    for (size_t i = 0; i < paths_.size(); ++i) {
      PathInfo& path = paths_[i];
      path.loop = (path.loop || loop_names_.count(names_[i])) && !path.executor;
      path.gil = path.gil || gil_names_.count(names_[i]) || (path.loop && any_gil);
      const auto lock = locks_.find(names_[i]);
      if (lock != locks_.end()) path.lock = lock->second;
    }
  }

  // A step's demand is capped at its P90 over all requests, those without it counting as zero. A step that fewer than
  // one in ten takes would be capped at nothing, and with it the work of every rare operation would go; it is capped
  // at the P90 of all the steps' demands instead. Delays load no server: their cap is among those who have them.
  void SetCaps() {
    std::vector<double> all_work;
    for (const PathInfo& path : paths_) {
      for (size_t c = 0; c < path.demand_ns.size(); ++c) {
        if (KeepsLoop(static_cast<Cause>(c))) {
          all_work.insert(all_work.end(), path.demand_ns[c].begin(), path.demand_ns[c].end());
        }
      }
    }
    const double common = QuantileOf(&all_work, 0, kDemandCapQuantile);
    for (PathInfo& path : paths_) {
      for (size_t c = 0; c < path.demand_ns.size(); ++c) {
        std::vector<double>& demand = path.demand_ns[c];
        const size_t zeros =
            KeepsLoop(static_cast<Cause>(c)) ? ledgers_.size() - std::min(ledgers_.size(), demand.size()) : 0;
        path.cap_ns[c] = QuantileOf(&demand, zeros, kDemandCapQuantile);
        if (path.cap_ns[c] <= 0) path.cap_ns[c] = common;
      }
    }
  }

  // As many workers as were ever seen at work at once.
  int ExecutorSlots() const {
    std::vector<std::pair<int64_t, int>> edges;
    for (size_t t = 0; t < ledgers_.size(); ++t) {
      const TraceLedger& ledger = ledgers_[t];
      for (size_t i = 0; i < ledger.pieces.size();) {
        const uint32_t path = path_of_[t][ledger.pieces[i].path];
        if (!paths_[path].executor || ledger.pieces[i].cause == Cause::kQueue) {
          ++i;
          continue;
        }
        edges.emplace_back(ledger.start_unix_ns + ledger.pieces[i].start_ns, 1);
        while (i < ledger.pieces.size() && path_of_[t][ledger.pieces[i].path] == path) ++i;
        edges.emplace_back(ledger.start_unix_ns + ledger.pieces[i - 1].end_ns, -1);
      }
    }
    std::sort(edges.begin(), edges.end());
    int open = 0, most = 1;
    for (const auto& [at, change] : edges) most = std::max(most, open += change);
    return most;
  }

  void Compile(const TraceLedger& ledger) {
    const size_t t = plan_.step_begin.size() - 1;
    std::map<std::pair<uint32_t, Cause>, double> demand;
    if (options_.cap_demands) {
      for (const LedgerPiece& piece : ledger.pieces) {
        demand[{path_of_[t][piece.path], ReplayedAs(piece)}] += static_cast<double>(piece.end_ns - piece.start_ns);
      }
    }
    held_executor_ = held_loop_ = false;
    held_lock_ = -1;
    for (const LedgerPiece& piece : ledger.pieces) {
      const uint32_t id = path_of_[t][piece.path];
      const PathInfo& path = paths_[id];
      const Cause cause = ReplayedAs(piece);
      Hold(path, path.loop && KeepsLoop(cause), model::IsContention(cause));
      if (model::IsContention(cause)) continue;
      double ns = static_cast<double>(piece.end_ns - piece.start_ns);
      if (options_.cap_demands) {
        const double cap = path.cap_ns[static_cast<size_t>(cause)], all = demand[{id, cause}];
        if (all > cap) ns *= cap / all;
      }
      Append({IsWork(cause) ? StepKind::kWork : StepKind::kDelay, path.gil, 0, path.name, std::llround(ns)});
    }
    Hold(PathInfo{}, false, false);
  }

  // Lets go and takes servers for the next piece, always in the order executor, lock, loop: no cycle of waits. A
  // contention piece ends a step on the loop but keeps what is held around it.
  void Hold(const PathInfo& path, bool loop, bool waiting) {
    const bool change = path.executor != held_executor_ || path.lock != held_lock_;
    if (held_loop_ && (!loop || waiting || change)) {
      Server(StepKind::kRelease, kServerLoop);
      held_loop_ = false;
    }
    if (change) {
      if (held_lock_ >= 0) Server(StepKind::kRelease, static_cast<uint16_t>(held_lock_));
      if (held_executor_ && !path.executor) Server(StepKind::kRelease, kServerExecutor);
      if (path.executor && !held_executor_) Server(StepKind::kAcquire, kServerExecutor);
      if (path.lock >= 0) Server(StepKind::kAcquire, static_cast<uint16_t>(path.lock));
      held_executor_ = path.executor;
      held_lock_ = path.lock;
    }
    if (loop && !waiting && !held_loop_) {
      Server(StepKind::kAcquire, kServerLoop);
      held_loop_ = true;
    }
  }

  void Server(StepKind kind, uint16_t server) { plan_.steps.push_back({kind, false, server, 0, 0}); }

  void Append(const Step& step) {
    if (plan_.steps.size() > plan_.step_begin.back()) {
      Step& last = plan_.steps.back();
      if (last.kind == step.kind && last.name == step.name && last.gil == step.gil) {
        last.ns += step.ns;
        return;
      }
    }
    plan_.steps.push_back(step);
  }

  const std::vector<TraceLedger>& ledgers_;
  const ReplayOptions& options_;
  ReplayPlan plan_;
  std::vector<PathInfo> paths_;
  std::vector<std::string> names_;
  std::vector<std::vector<uint32_t>> path_of_;
  std::unordered_map<std::string, uint32_t> path_ids_;
  std::unordered_map<std::string, uint16_t> name_ids_;
  std::unordered_map<std::string, bool> loop_names_, gil_names_;
  std::map<std::string, uint16_t> locks_;
  bool held_executor_ = false, held_loop_ = false;
  int held_lock_ = -1;
};

}  // namespace

ReplayPlan PlanReplay(const std::vector<TraceLedger>& ledgers, const ReplayOptions& options) {
  return Planner(ledgers, options).Run();
}

}  // namespace tailspan::analyze
