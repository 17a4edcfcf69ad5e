#include "analyze/replay.h"

#include <algorithm>
#include <deque>
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

// What a request is doing inside its present step.
enum class Phase : uint8_t { kStart, kGotServer, kGotGil, kGotCpu, kSliceDone, kDelayDone };

struct State {
  size_t step = 0, end = 0;
  Phase phase = Phase::kStart;
  int64_t left_ns = 0;  // of the present kWork step
  int64_t slice_ns = 0;
  int64_t asked_ns = 0;  // when it joined a server's line
  int64_t arrived_ns = 0;
  bool done = false;
};

class Simulation {
 public:
  Simulation(const ReplayPlan& plan, const std::vector<model::TraceLedger>& ledgers)
      : plan_(plan), free_(plan.slots), waiting_(plan.slots.size()), states_(ledgers.size()) {
    out_.requests.resize(ledgers.size());
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
  bool Take(uint16_t server, uint32_t request, Phase phase) {
    states_[request].phase = phase;
    if (free_[server] > 0) {
      --free_[server];
      return true;
    }
    states_[request].asked_ns = now_ns_;
    waiting_[server].push_back(request);
    return false;
  }

  void Release(uint16_t server) {
    if (waiting_[server].empty()) {
      ++free_[server];
      return;
    }
    const uint32_t next = waiting_[server].front();
    waiting_[server].pop_front();
    out_.requests[next].wait_ns[static_cast<size_t>(KindOf(server))] +=
        static_cast<double>(now_ns_ - states_[next].asked_ns);
    Schedule(now_ns_, next);
  }

  void NextStep(State* state) {
    ++state->step;
    state->phase = Phase::kStart;
  }

  // Runs one request until it has to wait for time or for a server.
  void Advance(uint32_t request) {
    State& state = states_[request];
    while (state.step < state.end) {
      if (!RunStep(request, plan_.steps[state.step], &state)) return;
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
        break;
      case StepKind::kAcquire:
        if (state->phase == Phase::kStart && !Take(step.server, request, Phase::kGotServer)) return false;
        break;
      case StepKind::kRelease:
        Release(step.server);
        break;
      case StepKind::kWork:
        if (!Work(request, step, state)) return false;
        break;
    }
    NextStep(state);
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
          if (!EndSlice(request, step, state)) return false;
          if (state->left_ns <= 0) return true;
      }
    }
  }

  // False when it has to stand in line again.
  bool EndSlice(uint32_t request, const Step& step, State* state) {
    const bool done = state->left_ns <= 0;
    const bool yield_gil = step.gil && (done || !waiting_[kServerGil].empty());
    if (done || yield_gil || !waiting_[kServerCpu].empty()) {
      Release(kServerCpu);
      if (yield_gil) Release(kServerGil);
      if (done) return true;
      if (yield_gil) return Take(kServerGil, request, Phase::kGotGil);
      return Take(kServerCpu, request, Phase::kGotCpu);
    }
    state->phase = Phase::kGotCpu;
    return true;
  }

  const ReplayPlan& plan_;
  std::vector<int> free_;
  std::vector<std::deque<uint32_t>> waiting_;
  std::vector<State> states_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t sequence_ = 0;
  int64_t now_ns_ = 0;
  Replay out_;
};

}  // namespace

double ReplayedRequest::contention_ns() const {
  double sum = 0;
  for (const double ns : wait_ns) sum += ns;
  return sum;
}

Replay ReplayArrivals(const std::vector<model::TraceLedger>& ledgers, const ReplayOptions& options) {
  const ReplayPlan plan = PlanReplay(ledgers, options);
  if (plan.too_large) return {};
  return Simulation(plan, ledgers).Run();
}

}  // namespace tailspan::analyze
