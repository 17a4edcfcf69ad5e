#include "analyze/span_join.h"

#include <algorithm>
#include <map>
#include <set>

namespace tailspan::analyze {
namespace {

using model::SpanId;

// A span's opening or closing on a joined thread.
struct Edge {
  int64_t at_ns = 0;
  bool opens = false;
  int trace = 0, node = 0;
};

void AddSpan(const std::vector<Trace>& traces, int trace, int node, std::vector<Edge>* edges) {
  const SpanNode& span = traces[static_cast<size_t>(trace)].nodes[static_cast<size_t>(node)];
  if (span.end_mono_ns <= span.start_mono_ns) return;
  edges->push_back({span.start_mono_ns, true, trace, node});
  edges->push_back({span.end_mono_ns, false, trace, node});
}

// At one instant: closings first.
void SortEdges(std::vector<Edge>* edges) {
  std::stable_sort(edges->begin(), edges->end(), [](const Edge& a, const Edge& b) {
    return std::pair(a.at_ns, a.opens) < std::pair(b.at_ns, b.opens);
  });
}

void AddMark(int64_t at_ns, SpanId span, std::vector<SpanMark>* marks) {
  if (!marks->empty() && marks->back().at_ns == at_ns) marks->pop_back();
  if (marks->empty() ? span == 0 : marks->back().span_id == span) return;
  marks->push_back({at_ns, span, -1});
}

// The spans that are open on a thread, in the order of their openings.
class OpenSpans {
 public:
  explicit OpenSpans(const std::vector<Trace>& traces) {
    size_t nodes = 0;
    for (const Trace& trace : traces) {
      first_.push_back(nodes);
      nodes += trace.nodes.size();
    }
    is_open_.resize(nodes);
  }

  void Pass(const Edge& edge) {
    is_open_[At(edge.trace, edge.node)] = edge.opens;
    count_ += edge.opens ? 1 : -1;
    if (edge.opens) opened_.push_back(edge);
    while (!opened_.empty() && !Has(opened_.back().trace, opened_.back().node)) opened_.pop_back();
  }

  int64_t count() const { return count_; }
  bool Has(int trace, int node) const { return is_open_[At(trace, node)]; }
  const Edge& Latest() const { return opened_.back(); }  // of those that open at once, parents stand first

 private:
  size_t At(int trace, int node) const { return first_[static_cast<size_t>(trace)] + static_cast<size_t>(node); }

  std::vector<size_t> first_;  // by trace: its root in is_open_
  std::vector<bool> is_open_;  // by trace and node
  std::vector<Edge> opened_;   // some have closed; the last has not
  int64_t count_ = 0;
};

class Joiner {
 public:
  Joiner(const std::vector<Trace>& traces, Timeline* timeline) : traces_(traces), timeline_(*timeline) {
    for (size_t i = 0; i < timeline_.threads().size(); ++i) {
      const ThreadLine& line = timeline_.threads()[i];
      if (!line.intervals.empty()) threads_of_[line.key.pid].push_back(static_cast<int>(i));
      if (line.has_ring || !line.marks.empty()) joined_.insert(line.key.pid);
    }
    only_pid_ = threads_of_.size() == 1 ? threads_of_.begin()->first : 0;
  }

  void ByThreadId() {
    std::map<int, std::vector<Edge>> edges;
    for (size_t t = 0; t < traces_.size(); ++t) {
      for (size_t n = 0; n < traces_[t].nodes.size(); ++n) {
        const model::Span& span = *traces_[t].nodes[n].span;
        if (span.thread_id == 0 || span.thread_id > INT32_MAX) continue;
        int thread = timeline_.FindThread({PidOf(span), static_cast<int32_t>(span.thread_id)});
        if (thread < 0) continue;
        const ThreadLine& line = timeline_.thread(thread);
        if (line.has_ring || !line.marks.empty() || line.intervals.empty()) continue;
        AddSpan(traces_, static_cast<int>(t), static_cast<int>(n), &edges[thread]);
      }
    }
    OpenSpans open(traces_);  // none is when a thread's last edge has passed
    for (auto& [thread, list] : edges) {
      SortEdges(&list);
      std::vector<SpanMark> marks;
      for (const Edge& edge : list) {
        open.Pass(edge);
        AddMark(edge.at_ns, Innermost(open), &marks);
      }
      joined_.insert(timeline_.thread(thread).key.pid);
      timeline_.SetMarks(thread, std::move(marks), model::Join::kThreadId);
    }
  }

  void ByOnlyOpenRequest() {
    std::map<int32_t, std::vector<Edge>> roots;
    for (size_t t = 0; t < traces_.size(); ++t) {
      int32_t pid = PidOf(*traces_[t].root().span);
      if (threads_of_.contains(pid) && !joined_.contains(pid)) AddSpan(traces_, static_cast<int>(t), 0, &roots[pid]);
    }
    for (auto& [pid, list] : roots) {
      SortEdges(&list);
      std::set<int> open;
      std::map<int, TracePass> passes;             // by trace
      std::map<int, std::vector<SpanMark>> marks;  // by thread
      for (size_t i = 0; i + 1 < list.size(); ++i) {
        if (list[i].opens) {
          open.insert(list[i].trace);
        } else {
          open.erase(list[i].trace);
        }
        int64_t from_ns = list[i].at_ns, to_ns = list[i + 1].at_ns;
        if (open.size() != 1 || to_ns <= from_ns) continue;
        int thread = Worker(pid, from_ns, to_ns);
        if (thread < 0) continue;
        auto [pass, fresh] = passes.try_emplace(*open.begin());
        if (fresh) pass->second = StartPass(*open.begin());
        MarkOpenSpans(*open.begin(), from_ns, to_ns, &pass->second, &marks[thread]);
      }
      for (auto& [thread, of_thread] : marks) {
        timeline_.SetMarks(thread, std::move(of_thread), model::Join::kOnlyOpenSpan);
      }
    }
  }

 private:
  int32_t PidOf(const model::Span& span) const { return span.pid ? span.pid : only_pid_; }

  // The one that all others are ancestors of; 0 when there is none.
  SpanId Innermost(const OpenSpans& open) const {
    if (open.count() == 0) return 0;
    const Edge& last = open.Latest();
    const Trace& trace = traces_[static_cast<size_t>(last.trace)];
    int64_t found = 1;
    for (int up = trace.nodes[static_cast<size_t>(last.node)].parent; up >= 0 && found < open.count();
         up = trace.nodes[static_cast<size_t>(up)].parent) {
      found += open.Has(last.trace, up) ? 1 : 0;
    }
    return found == open.count() ? trace.nodes[static_cast<size_t>(last.node)].span->span_id : 0;
  }

  // The thread that has at least half of the process's on-CPU time; -1 none.
  int Worker(int32_t pid, int64_t from_ns, int64_t to_ns) const {
    int best = -1;
    int64_t best_ns = 0, all_ns = 0;
    for (int thread : threads_of_.at(pid)) {
      int64_t ns = 0;
      for (const Slice& slice : timeline_.Slices(thread, from_ns, to_ns)) {
        if (slice.kind == Slice::Kind::kOnCpu) ns += slice.end_ns - slice.start_ns;
      }
      all_ns += ns;
      if (ns > best_ns) {
        best_ns = ns;
        best = thread;
      }
    }
    return best_ns * 2 >= all_ns ? best : -1;
  }

  // One pass through a trace's spans, in order of time.
  struct TracePass {
    struct Open {
      int64_t count = 0, sum = 0;  // of the indices of the open children: with one, it is that child's
    };
    std::vector<Edge> edges;
    size_t next = 0;
    std::vector<Open> children;  // by node
  };

  TracePass StartPass(int trace_index) const {
    const size_t nodes = traces_[static_cast<size_t>(trace_index)].nodes.size();
    TracePass pass;
    for (size_t n = 1; n < nodes; ++n) AddSpan(traces_, trace_index, static_cast<int>(n), &pass.edges);
    SortEdges(&pass.edges);
    pass.children.resize(nodes);
    return pass;
  }

  // Within [from, to), which lies after all that it was called with before: from the root down as long as exactly one
  // child is open.
  void MarkOpenSpans(int trace_index, int64_t from_ns, int64_t to_ns, TracePass* pass,
                     std::vector<SpanMark>* marks) const {
    const Trace& trace = traces_[static_cast<size_t>(trace_index)];
    auto mark = [&](int64_t at_ns) {
      size_t node = 0;
      while (pass->children[node].count == 1) node = static_cast<size_t>(pass->children[node].sum);
      AddMark(at_ns, trace.nodes[node].span->span_id, marks);
    };
    auto step = [&] {
      const Edge& edge = pass->edges[pass->next++];
      auto& siblings = pass->children[static_cast<size_t>(trace.nodes[static_cast<size_t>(edge.node)].parent)];
      siblings.count += edge.opens ? 1 : -1;
      siblings.sum += edge.opens ? edge.node : -edge.node;
    };
    auto next_ns = [&] { return pass->next < pass->edges.size() ? pass->edges[pass->next].at_ns : INT64_MAX; };
    while (next_ns() <= from_ns) step();
    mark(from_ns);
    while (next_ns() < to_ns) {
      int64_t at_ns = next_ns();
      while (next_ns() == at_ns) step();
      mark(at_ns);
    }
    AddMark(to_ns, 0, marks);
  }

  const std::vector<Trace>& traces_;
  Timeline& timeline_;
  std::map<int32_t, std::vector<int>> threads_of_;  // with kernel records, by process
  std::set<int32_t> joined_;                        // processes with a thread that has its span from somewhere
  int32_t only_pid_ = 0;
};

}  // namespace

void JoinSpansToThreads(const std::vector<Trace>& traces, Timeline* timeline) {
  Joiner joiner(traces, timeline);
  joiner.ByThreadId();
  joiner.ByOnlyOpenRequest();
}

}  // namespace tailspan::analyze
