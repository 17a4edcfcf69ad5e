#include "analyze/replay.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <tuple>

#include "analyze/replay_steps.h"

namespace tailspan::analyze {
namespace {

struct Event {
  int64_t at_ns;
  uint64_t sequence;  // events at the same time run in the order they were made
  uint32_t request;
  bool operator>(const Event& other) const { return std::tie(at_ns, sequence) > std::tie(other.at_ns, other.sequence); }
};

WaitKind KindOf(uint16_t server) {
  return server >= kServerFirstLock ? WaitKind::kLock : static_cast<WaitKind>(server);
}

// How long spans of each name have kept a server busy so far. A waiter compares two readings to learn for whom it
// waited. Few names ever work at one server, so the list is short.
class BusyBook {
 public:
  struct Entry {
    WaitKind kind;
    uint16_t name;
    double ns;
  };
  void Add(WaitKind kind, uint16_t name, double ns) {
    for (Entry& entry : entries_) {
      if (entry.kind == kind && entry.name == name) {
        entry.ns += ns;
        return;
      }
    }
    entries_.push_back({kind, name, ns});
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

struct Server {
  int free = 1, slots = 1;
  std::deque<uint32_t> line;
  BusyBook book;
};

// What a request is doing inside its present step.
enum class Phase : uint8_t { kStart, kGotServer, kGotGil, kGotCpu, kSliceDone, kDelayDone };

struct State {
  size_t step = 0, end = 0;
  Phase phase = Phase::kStart;
  int64_t left_ns = 0;  // of the present kWork step
  int64_t slice_ns = 0;
  int64_t arrived_ns = 0;
  int64_t asked_ns = 0;        // when it joined a server's line
  std::vector<double> before;  // the server's book then
  std::vector<uint16_t> held;  // loop, executor, lock and GIL, as taken
  bool done = false;
};

class Simulation {
 public:
  Simulation(const ReplayPlan& plan, const std::vector<model::TraceLedger>& ledgers)
      : plan_(plan), servers_(plan.slots.size()), states_(ledgers.size()) {
    out_.names = plan.names;
    out_.requests.resize(ledgers.size());
    for (size_t s = 0; s < servers_.size(); ++s) servers_[s].free = servers_[s].slots = plan.slots[s];
    int64_t first_ns = INT64_MAX;
    for (const model::TraceLedger& ledger : ledgers) first_ns = std::min(first_ns, ledger.start_unix_ns);
    for (uint32_t i = 0; i < ledgers.size(); ++i) {
      states_[i].step = plan.step_begin[i];
      states_[i].end = plan.step_begin[i + 1];
      states_[i].arrived_ns = ledgers[i].start_unix_ns - first_ns;
      Schedule(states_[i].arrived_ns, i);
    }
  }

  Replay Run() {
    size_t left = states_.size();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ns_ = event.at_ns;
      Advance(event.request);
      if (states_[event.request].done) --left;
    }
    out_.complete = left == 0;
    return std::move(out_);
  }

 private:
  void Schedule(int64_t at_ns, uint32_t request) { events_.push({at_ns, sequence_++, request}); }

  // True when it has the server at once; else it stands in line and is woken with `phase` set.
  bool Take(uint16_t id, uint32_t request, Phase phase) {
    Server& server = servers_[id];
    State& state = states_[request];
    state.phase = phase;
    if (server.free > 0) {
      --server.free;
      if (id != kServerCpu) state.held.push_back(id);
      return true;
    }
    state.asked_ns = now_ns_;
    state.before.clear();
    for (const BusyBook::Entry& entry : server.book.entries()) state.before.push_back(entry.ns);
    server.line.push_back(request);
    return false;
  }

  void Release(uint16_t id, uint32_t request) {
    Server& server = servers_[id];
    if (id != kServerCpu) std::erase(states_[request].held, id);
    if (server.line.empty()) {
      ++server.free;
      return;
    }
    const uint32_t next = server.line.front();
    server.line.pop_front();
    BookWait(id, next);
    if (id != kServerCpu) states_[next].held.push_back(id);
    Schedule(now_ns_, next);
  }

  // Splits the wait that ends now by who kept the server busy meanwhile; whoever waits for this request's servers waits
  // for the same.
  void BookWait(uint16_t id, uint32_t request) {
    State& state = states_[request];
    const double wait_ns = static_cast<double>(now_ns_ - state.asked_ns);
    if (wait_ns <= 0) return;
    const auto entries = servers_[id].book.entries();  // a copy: Keep() below may add to it
    double busy_ns = 0;
    const auto grown = [&](size_t i) { return entries[i].ns - (i < state.before.size() ? state.before[i] : 0); };
    for (size_t i = 0; i < entries.size(); ++i) busy_ns += grown(i);
    for (size_t i = 0; i < entries.size() && busy_ns > 0; ++i) {
      if (grown(i) > 0) Book(request, entries[i].kind, entries[i].name, wait_ns * grown(i) / busy_ns);
    }
    if (busy_ns <= 0) Book(request, KindOf(id), plan_.steps[state.step].name, wait_ns);
  }

  void Book(uint32_t request, WaitKind kind, uint16_t name, double ns) {
    ReplayedRequest& out = out_.requests[request];
    out.wait_ns += ns;
    for (const uint16_t id : states_[request].held) servers_[id].book.Add(kind, name, ns);
    for (ReplayedWait& wait : out.waits) {
      if (wait.kind == kind && wait.name == name) {
        wait.ns += ns;
        return;
      }
    }
    out.waits.push_back({kind, name, ns});
  }

  // This request kept what it holds busy for so long.
  void Keep(uint32_t request, uint16_t name, int64_t ns, bool cpu) {
    for (const uint16_t id : states_[request].held) servers_[id].book.Add(KindOf(id), name, static_cast<double>(ns));
    if (cpu) servers_[kServerCpu].book.Add(WaitKind::kCpu, name, static_cast<double>(ns));
  }

  // Runs one request until it has to wait for time or for a server.
  void Advance(uint32_t request) {
    State& state = states_[request];
    while (state.step < state.end) {
      if (!RunStep(request, plan_.steps[state.step], &state)) return;
      ++state.step;
      state.phase = Phase::kStart;
    }
    state.done = true;
    out_.requests[request].total_ns = static_cast<double>(now_ns_ - state.arrived_ns);
  }

  // False when the request now waits.
  bool RunStep(uint32_t request, const Step& step, State* state) {
    switch (step.kind) {
      case StepKind::kDelay:
        if (state->phase == Phase::kStart && step.ns > 0) {
          state->phase = Phase::kDelayDone;
          Schedule(now_ns_ + step.ns, request);
          return false;
        }
        Keep(request, step.name, step.ns, false);
        return true;
      case StepKind::kAcquire:
        return state->phase != Phase::kStart || Take(step.server, request, Phase::kGotServer);
      case StepKind::kRelease:
        Release(step.server, request);
        return true;
      case StepKind::kWork:
        return Work(request, step, state);
    }
    return true;
  }

  // Slices of the GIL and of a CPU; at the end of a slice it goes to the back of the line if anyone stands there.
  bool Work(uint32_t request, const Step& step, State* state) {
    for (;;) {
      switch (state->phase) {
        case Phase::kStart:
          state->left_ns = step.ns;
          if (step.gil && !Take(kServerGil, request, Phase::kGotGil)) return false;
          state->phase = Phase::kGotGil;
          break;
        case Phase::kGotGil:
          if (!Take(kServerCpu, request, Phase::kGotCpu)) return false;
          break;
        case Phase::kGotCpu:
          state->slice_ns = std::min(state->left_ns, step.gil ? kGilSliceNs : kCpuSliceNs);
          state->phase = Phase::kSliceDone;
          Schedule(now_ns_ + state->slice_ns, request);
          return false;
        default:
          state->left_ns -= state->slice_ns;
          Keep(request, step.name, state->slice_ns, true);
          if (!EndSlice(request, step, state)) return false;
          if (state->left_ns <= 0) return true;
      }
    }
  }

  // False when it has to stand in line again.
  bool EndSlice(uint32_t request, const Step& step, State* state) {
    const bool done = state->left_ns <= 0;
    const bool yield_gil = step.gil && (done || !servers_[kServerGil].line.empty());
    if (done || yield_gil || !servers_[kServerCpu].line.empty()) {
      Release(kServerCpu, request);
      if (yield_gil) Release(kServerGil, request);
      if (done) return true;
      if (yield_gil) return Take(kServerGil, request, Phase::kGotGil);
      return Take(kServerCpu, request, Phase::kGotCpu);
    }
    state->phase = Phase::kGotCpu;
    return true;
  }

  const ReplayPlan& plan_;
  std::vector<Server> servers_;
  std::vector<State> states_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t sequence_ = 0;
  int64_t now_ns_ = 0;
  Replay out_;
};

}  // namespace

Replay ReplayArrivals(const std::vector<model::TraceLedger>& ledgers, const ReplayOptions& options) {
  const ReplayPlan plan = PlanReplay(ledgers, options);
  if (plan.too_large) return {};
  return Simulation(plan, ledgers).Run();
}

}  // namespace tailspan::analyze
