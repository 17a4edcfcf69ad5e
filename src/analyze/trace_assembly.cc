#include "analyze/trace_assembly.h"

#include <algorithm>
#include <unordered_map>

namespace tailspan::analyze {
namespace {

using base::Loss;
using model::Span;
using model::SpanId;

// The entry of a request into a server. OpenTelemetry's ASGI and WSGI instrumentations call the span INTERNAL when a
// local span is current, so the kind alone does not tell; what only the serving side knows does.
bool IsServerEntry(const Span& span) {
  constexpr int32_t kServer = 2, kClient = 3;
  if (span.otel_kind == kServer) return true;
  if (span.otel_kind == kClient) return false;
  for (const auto& [name, value] : span.attributes) {
    if (name == "http.route" || name == "http.target" || name == "url.path") return true;
  }
  return false;
}

// The newest complete version of each span; a span without an end loses against one with it.
std::vector<const Span*> Deduplicate(const std::vector<const Span*>& spans, base::LossCounters* loss) {
  std::vector<const Span*> out;
  std::unordered_map<SpanId, size_t, model::ForeignNumberHash> seen;
  for (const Span* span : spans) {
    auto [it, fresh] = seen.try_emplace(span->span_id, out.size());
    if (fresh) {
      out.push_back(span);
      continue;
    }
    const Span*& kept = out[it->second];
    if (kept->uuid && span->uuid && kept->uuid != span->uuid) {
      loss->Add(Loss::kSpanIdCollision);
      out.push_back(span);
    } else {
      loss->Add(Loss::kSpanRepeated);
      if (span->complete || !kept->complete) kept = span;
    }
  }
  return out;
}

class Assembler {
 public:
  Assembler(std::vector<const Span*> spans, const LedgerOptions& options, base::LossCounters* loss)
      : spans_(std::move(spans)), options_(options), loss_(loss) {
    std::stable_sort(spans_.begin(), spans_.end(),
                     [](const Span* a, const Span* b) { return a->start_unix_ns < b->start_unix_ns; });
    if (spans_.size() > options_.spans_per_trace_max) {
      KeepRootsFirst();
      loss_->Add(Loss::kTraceTooLarge, spans_.size() - options_.spans_per_trace_max);
      spans_.resize(options_.spans_per_trace_max);
    }
    for (const Span* span : spans_) {
      if (!span->complete) loss_->Add(Loss::kSpanIncomplete);
    }
    for (size_t i = 0; i < spans_.size(); ++i) index_.try_emplace(spans_[i]->span_id, static_cast<int>(i));
    LinkParents();
    CutCycles();
    CutLeaks();
    AdoptOrphans();
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (parent_[i] >= 0) children_[static_cast<size_t>(parent_[i])].push_back(static_cast<int>(i));
    }
  }

  void Build(const base::ClockMap& clock, std::vector<Trace>* out) const {
    for (size_t i = 0; i < spans_.size(); ++i) {
      const Span& root = *spans_[i];
      if (parent_[i] >= 0 || root.time_suspect) continue;
      if (!root.complete) loss_->Add(Loss::kTraceUnfinished);
      if (!root.complete || root.end_unix_ns <= root.start_unix_ns) continue;
      out->push_back(BuildOne(static_cast<int>(i), clock));
    }
  }

 private:
  void KeepRootsFirst() {
    std::stable_partition(spans_.begin(), spans_.end(), [](const Span* s) { return s->parent_id == 0; });
  }

  void LinkParents() {
    parent_.assign(spans_.size(), -1);
    missing_.assign(spans_.size(), false);
    children_.resize(spans_.size());
    for (size_t i = 0; i < spans_.size(); ++i) {
      SpanId id = spans_[i]->parent_id;
      if (id == 0) continue;
      auto it = index_.find(id);
      if (it == index_.end()) {
        missing_[i] = true;
      } else {
        parent_[i] = it->second;
      }
    }
  }

  // Each node is walked upward once; reaching a node of the same walk again is a circle, cut at the walk's first node
  // of it.
  void CutCycles() {
    std::vector<uint32_t> mark(spans_.size(), 0);
    for (size_t i = 0; i < spans_.size(); ++i) {
      auto walk = static_cast<uint32_t>(i + 1);
      int at = static_cast<int>(i);
      while (at >= 0 && mark[static_cast<size_t>(at)] == 0) {
        mark[static_cast<size_t>(at)] = walk;
        int up = parent_[static_cast<size_t>(at)];
        if (up >= 0 && mark[static_cast<size_t>(up)] == walk) {
          parent_[static_cast<size_t>(at)] = -1;
          missing_[static_cast<size_t>(at)] = true;
          loss_->Add(Loss::kSpanParentCycle);
          break;
        }
        at = up;
      }
    }
  }

  // A server that resumes reading a connection inside a request makes that request's context the connection's: later
  // requests on it would hang under one that has long ended. A server span that begins after its parent's end is a
  // root.
  void CutLeaks() {
    leaked_.assign(spans_.size(), false);
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (parent_[i] < 0 || !IsServerEntry(*spans_[i])) continue;
      const Span& parent = *spans_[static_cast<size_t>(parent_[i])];
      if (!parent.complete || spans_[i]->start_unix_ns < parent.end_unix_ns) continue;
      parent_[i] = -1;
      leaked_[i] = true;
      loss_->Add(Loss::kSpanContextLeaked);
    }
  }

  // A span whose parent never came, or a second parentless span inside another's time (context that did not cross),
  // hangs under the root that encloses it. One that no root encloses is a root itself: its parent lives where nobody
  // records.
  void AdoptOrphans() {
    adopted_.assign(spans_.size(), false);
    int main_root = -1;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (parent_[i] >= 0 || leaked_[i] || spans_[i]->time_suspect) continue;
      bool better = main_root < 0 || (missing_[static_cast<size_t>(main_root)] && !missing_[i]);
      if (better) main_root = static_cast<int>(i);
    }
    if (main_root < 0) return;
    for (size_t i = 0; i < spans_.size(); ++i) called_.push_back(missing_[i] && IsServerEntry(*spans_[i]));
    std::vector<int> roots{main_root};  // then by start
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (parent_[i] >= 0 || static_cast<int>(i) == main_root) continue;
      const int outer = leaked_[i] ? -1 : EnclosingRoot(roots, i);
      if (outer < 0) {
        roots.push_back(static_cast<int>(i));
        continue;
      }
      parent_[i] = outer;
      adopted_[i] = true;
      loss_->Add(Loss::kSpanParentMissing);
    }
  }

  // The first root when it does, else the latest; -1 when none of those that were looked at does. Of two requests that
  // were called from where nobody records neither is the other's.
  int EnclosingRoot(const std::vector<int>& roots, size_t span) const {
    constexpr size_t kRootsLookedAtMax = 64;
    const auto encloses = [&](int root) {
      const Span& outer = *spans_[static_cast<size_t>(root)];
      const bool both_called = called_[static_cast<size_t>(root)] && called_[span];
      return !both_called && !outer.time_suspect && spans_[span]->start_unix_ns >= outer.start_unix_ns &&
             spans_[span]->start_unix_ns < outer.end_unix_ns;
    };
    if (encloses(roots.front())) return roots.front();
    for (size_t i = roots.size(); i-- > 1 && roots.size() - i <= kRootsLookedAtMax;) {
      if (encloses(roots[i])) return roots[i];
    }
    return -1;
  }

  Trace BuildOne(int root, const base::ClockMap& clock) const {
    Trace trace;
    trace.id = spans_[static_cast<size_t>(root)]->trace_id;
    struct Open {
      int span;
      int parent_node;
      int depth;
    };
    std::vector<Open> stack{{root, -1, 0}};
    while (!stack.empty()) {
      Open open = stack.back();
      stack.pop_back();
      auto span_index = static_cast<size_t>(open.span);
      int node = static_cast<int>(trace.nodes.size());
      int depth = open.depth + 1;
      int as_parent = node;
      if (open.depth >= options_.span_depth_max) {
        loss_->Add(Loss::kTraceTooDeep);
        as_parent = open.parent_node;  // its children become its siblings
        depth = open.depth;
      }
      SpanNode made;
      made.span = spans_[span_index];
      made.parent = open.parent_node;
      made.adopted = adopted_[span_index];
      made.start_mono_ns = clock.MonoFromUnix(made.span->start_unix_ns);
      // The root's duration is the span's own, to the nanosecond; the clock map places it.
      // A span without an end is given none: it takes no time of its own.
      int64_t end_unix_ns = made.span->complete ? made.span->end_unix_ns : made.span->start_unix_ns;
      made.end_mono_ns = made.start_mono_ns + (end_unix_ns - made.span->start_unix_ns);
      if (open.parent_node >= 0) trace.nodes[static_cast<size_t>(open.parent_node)].children.push_back(node);
      trace.nodes.push_back(std::move(made));
      for (int child : children_[span_index]) stack.push_back({child, as_parent, depth});
    }
    return trace;
  }

  std::vector<const Span*> spans_;
  const LedgerOptions& options_;
  base::LossCounters* loss_;
  std::unordered_map<SpanId, int, model::ForeignNumberHash> index_;
  std::vector<int> parent_;
  std::vector<bool> missing_, leaked_, adopted_;
  std::vector<bool> called_;  // a request, by a parent that never came
  std::vector<std::vector<int>> children_;
};

}  // namespace

std::vector<Trace> AssembleTraces(const std::vector<Span>& spans, const base::ClockMap& clock,
                                  const LedgerOptions& options, base::LossCounters* loss) {
  std::vector<const Span*> by_trace;
  by_trace.reserve(spans.size());
  for (const Span& span : spans) by_trace.push_back(&span);
  std::stable_sort(by_trace.begin(), by_trace.end(),
                   [](const Span* a, const Span* b) { return a->trace_id < b->trace_id; });
  std::vector<Trace> out;
  for (auto first = by_trace.begin(); first != by_trace.end();) {
    auto after = first;
    while (after != by_trace.end() && (*after)->trace_id == (*first)->trace_id) ++after;
    Assembler(Deduplicate(std::vector<const Span*>(first, after), loss), options, loss).Build(clock, &out);
    first = after;
  }
  std::stable_sort(out.begin(), out.end(), [](const Trace& a, const Trace& b) {
    return std::pair(a.root().start_mono_ns, a.id) < std::pair(b.root().start_mono_ns, b.id);
  });
  return out;
}

}  // namespace tailspan::analyze
