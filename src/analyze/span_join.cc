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
    for (auto& [thread, list] : edges) {
      SortEdges(&list);
      std::vector<SpanMark> marks;
      std::vector<Edge> open;
      for (const Edge& edge : list) {
        if (edge.opens) {
          open.push_back(edge);
        } else {
          std::erase_if(open, [&](const Edge& o) { return o.trace == edge.trace && o.node == edge.node; });
        }
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
        if (thread >= 0) MarkOpenSpans(*open.begin(), from_ns, to_ns, &marks[thread]);
      }
      for (auto& [thread, of_thread] : marks) {
        timeline_.SetMarks(thread, std::move(of_thread), model::Join::kOnlyOpenSpan);
      }
    }
  }

 private:
  int32_t PidOf(const model::Span& span) const { return span.pid ? span.pid : only_pid_; }

  // The one that all others are ancestors of; 0 when there is none.
  SpanId Innermost(const std::vector<Edge>& open) const {
    if (open.empty()) return 0;
    const Edge& last = open.back();  // the latest to open; of those that open at once, parents stand first
    const Trace& trace = traces_[static_cast<size_t>(last.trace)];
    size_t found = 1;
    for (int up = trace.nodes[static_cast<size_t>(last.node)].parent; up >= 0 && found < open.size();
         up = trace.nodes[static_cast<size_t>(up)].parent) {
      found += static_cast<size_t>(std::count_if(open.begin(), open.end(),
                                                 [&](const Edge& o) { return o.trace == last.trace && o.node == up; }));
    }
    return found == open.size() ? trace.nodes[static_cast<size_t>(last.node)].span->span_id : 0;
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

  // Within [from, to): from the root down as long as exactly one child is open.
  void MarkOpenSpans(int trace_index, int64_t from_ns, int64_t to_ns, std::vector<SpanMark>* marks) const {
    const Trace& trace = traces_[static_cast<size_t>(trace_index)];
    std::vector<Edge> edges;
    for (size_t n = 1; n < trace.nodes.size(); ++n) AddSpan(traces_, trace_index, static_cast<int>(n), &edges);
    SortEdges(&edges);
    struct Open {
      int64_t count = 0, sum = 0;  // of the indices of the open children: with one, it is that child's
    };
    std::vector<Open> children(trace.nodes.size());
    auto mark = [&](int64_t at_ns) {
      size_t node = 0;
      while (children[node].count == 1) node = static_cast<size_t>(children[node].sum);
      AddMark(at_ns, trace.nodes[node].span->span_id, marks);
    };
    size_t i = 0;
    auto pass = [&] {
      Open& siblings = children[static_cast<size_t>(trace.nodes[static_cast<size_t>(edges[i].node)].parent)];
      siblings.count += edges[i].opens ? 1 : -1;
      siblings.sum += edges[i].opens ? edges[i].node : -edges[i].node;
      ++i;
    };
    while (i < edges.size() && edges[i].at_ns <= from_ns) pass();
    mark(from_ns);
    while (i < edges.size() && edges[i].at_ns < to_ns) {
      int64_t at_ns = edges[i].at_ns;
      while (i < edges.size() && edges[i].at_ns == at_ns) pass();
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
