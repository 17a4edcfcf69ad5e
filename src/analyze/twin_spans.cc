#include "analyze/twin_spans.h"

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace tailspan::analyze {
namespace {

using base::Loss;
using model::Span;
using model::SpanId;
using model::SpanType;
using model::TraceId;

// Two tracers' handlers run one after the other in the same thread; another thread may take the GIL in between.
constexpr int64_t kTwinNs = 20'000'000;
// The next best candidate must be off by so much more than the best.
constexpr int64_t kMarginNs = 1'000'000;
constexpr int64_t kMarginFactor = 3;
// Of two traces that may belong to one, the better must have so many more of its spans at their place.
constexpr double kSecondVotesMax = 0.75;
constexpr size_t kCandidatesMax = 1024;
constexpr int kDepthMax = 512;
constexpr int kRankDepthMax = 64;
// Each round knows more traces that belong together, and looks within them alone.
constexpr int kRounds = 3;
// So many levels of late spans, one below the other, are paired by their place.
constexpr int kLateLevelsMax = 8;
constexpr int kNone = -1;

bool IsRun(const Span& span) { return span.source == "langsmith"; }

// Without what OpenLLMetry's releases put before or behind a name.
std::string_view BaseName(const Span& span) {
  std::string_view name = span.name;
  if (IsRun(span)) return name;
  for (std::string_view suffix : {".workflow", ".task", ".tool", ".agent", ".chat", ".completion"}) {
    if (name.size() <= suffix.size() || name.substr(name.size() - suffix.size()) != suffix) continue;
    name.remove_suffix(suffix.size());
    return name;
  }
  for (std::string_view prefix : {"execute_task ", "execute_tool ", "invoke_agent ", "invoke_workflow "}) {
    if (name.size() > prefix.size() && name.substr(0, prefix.size()) == prefix) return name.substr(prefix.size());
  }
  return name;
}

// The conventions name a call of a model after the model, LangSmith after the class: there the kind must do.
std::string_view TwinName(const Span& span) { return span.type == SpanType::kLlm ? "llm" : BaseName(span); }

// Kinds that no tracer mistakes for one another; chains, prompts, parsers and tools are told apart by few.
bool KindsAgree(SpanType a, SpanType b) {
  auto strong = [](SpanType type) {
    return type == SpanType::kLlm || type == SpanType::kRetriever || type == SpanType::kEmbedding;
  };
  return a == b || !strong(a) || !strong(b);
}

bool SameProcess(const Span& a, const Span& b) { return a.pid == 0 || b.pid == 0 || a.pid == b.pid; }

bool Overlap(const Span& a, const Span& b) {
  int64_t common = std::min(a.end_unix_ns, b.end_unix_ns) - std::max(a.start_unix_ns, b.start_unix_ns);
  int64_t whole = std::max(a.end_unix_ns, b.end_unix_ns) - std::min(a.start_unix_ns, b.start_unix_ns);
  return common > 0 && 2 * common >= whole;
}

void TakeOver(const Span& run, Span* span) {
  for (const auto& attribute : run.attributes) {
    bool there = std::any_of(span->attributes.begin(), span->attributes.end(),
                             [&](const auto& own) { return own.first == attribute.first; });
    if (!there) span->attributes.push_back(attribute);
  }
  if (span->type == SpanType::kOther) span->type = run.type;
  if (span->status == model::SpanStatus::kUnset) span->status = run.status;
  if (span->pid == 0) span->pid = run.pid;
  if (span->input_tokens < 0) span->input_tokens = run.input_tokens;
  if (span->output_tokens < 0) span->output_tokens = run.output_tokens;
  if (span->model.empty()) span->model = run.model;
  span->uuid = run.uuid;
}

struct SpanKey {
  TraceId trace;
  SpanId id = 0;
  bool operator==(const SpanKey&) const = default;
};
struct SpanKeyHash {
  size_t operator()(const SpanKey& key) const {
    return model::ForeignNumberHash()(model::IdHash()(key.trace) ^ key.id);
  }
};

class Merger {
 public:
  Merger(const model::RecordBatch& batch, base::LossCounters* loss)
      : batch_(batch), loss_(loss), spans_(batch.spans), info_(spans_.size()) {}

  MergedSpans Run() {
    Link();
    PairPublished();
    const auto buckets = Buckets();
    for (const auto& [name, bucket] : buckets) Vote(bucket);
    CountVotes();
    for (int round = 0; round < kRounds; ++round) {
      for (Info& info : info_) info.nearest = {};
      for (const auto& [name, bucket] : buckets) FindNearest(bucket);
      Accept();
    }
    for (const auto& [name, bucket] : buckets) PairInOrder(bucket);
    for (int level = 0; level < kLateLevelsMax && PairByPlace(); ++level) {
    }
    Apply();
    AdoptRoots();
    LeaveOutAmbiguous();
    MergedSpans out;
    out.changed = true;
    out.stands_for = std::move(stands_for_);
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (!info_[i].gone) out.spans.push_back(std::move(spans_[i]));
    }
    return out;
  }

 private:
  struct Nearest {
    int span = kNone;
    int64_t off_ns = INT64_MAX;   // of its start and end together
    int64_t next_ns = INT64_MAX;  // of the second nearest
    void Take(int other, int64_t other_ns) {
      if (other_ns < off_ns) {
        next_ns = off_ns;
        off_ns = other_ns;
        span = other;
      } else {
        next_ns = std::min(next_ns, other_ns);
      }
    }
    bool IsClear() const {
      return span != kNone && (next_ns == INT64_MAX || next_ns >= std::max(kMarginFactor * off_ns, off_ns + kMarginNs));
    }
  };
  struct Info {
    int parent = kNone;
    int rank = 0;  // ancestors of the same name
    Nearest nearest;
    int twin = kNone;
    bool rivalled = false;  // a run that might be the twin of some OTLP span
    bool gone = false;
  };
  struct Bucket {
    std::vector<int> runs, others;  // by start
  };
  // The children of one name below two parents that are twins.
  struct Place {
    int parent = kNone;  // the OTLP one
    std::string_view name;
    auto operator<=>(const Place&) const = default;
  };

  Span& At(int i) { return spans_[static_cast<size_t>(i)]; }
  Info& InfoAt(int i) { return info_[static_cast<size_t>(i)]; }

  void Link() {
    for (size_t i = 0; i < spans_.size(); ++i) {
      index_.try_emplace({spans_[i].trace_id, spans_[i].span_id}, static_cast<int>(i));
    }
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (spans_[i].parent_id == 0) continue;
      auto found = index_.find({spans_[i].trace_id, spans_[i].parent_id});
      if (found != index_.end() && found->second != static_cast<int>(i)) info_[i].parent = found->second;
    }
    for (size_t i = 0; i < spans_.size(); ++i) {
      int steps = 0;
      for (int up = info_[i].parent; up != kNone && steps < kRankDepthMax; up = InfoAt(up).parent, ++steps) {
        info_[i].rank += TwinName(At(up)) == TwinName(spans_[i]) && IsRun(At(up)) == IsRun(spans_[i]);
      }
    }
  }

  // What a thread published is exact: the ids of the OTLP span together with the id of the run that it was made for.
  // One such record tells which two traces belong together, however late one tracer's handler runs after the other's.
  void PairPublished() {
    std::unordered_map<model::Uuid, int, model::IdHash> runs;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (IsRun(spans_[i]) && spans_[i].uuid) runs.try_emplace(spans_[i].uuid, static_cast<int>(i));
    }
    const model::ThreadInterval* before = nullptr;
    for (const model::ThreadInterval& interval : batch_.intervals) {
      if (!interval.uuid || interval.span_id == model::SpanIdOfRun(interval.uuid)) continue;
      bool again = before && before->uuid == interval.uuid && before->span_id == interval.span_id;
      before = &interval;
      if (again) continue;
      auto run = runs.find(interval.uuid);
      auto other = index_.find({interval.trace_id, interval.span_id});
      if (run == runs.end() || other == index_.end() || IsRun(At(other->second))) continue;
      const Span& r = At(run->second);
      const Span& o = At(other->second);
      bool told = r.complete && o.complete && SameProcess(r, o) && KindsAgree(r.type, o.type);
      if (told && MayPair(run->second, other->second)) Pair(run->second, other->second);
    }
  }

  std::unordered_map<std::string, Bucket> Buckets() {
    std::unordered_map<std::string, Bucket> out;
    std::vector<int> by_start;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (!spans_[i].time_suspect && spans_[i].complete) by_start.push_back(static_cast<int>(i));
    }
    std::stable_sort(by_start.begin(), by_start.end(),
                     [this](int a, int b) { return At(a).start_unix_ns < At(b).start_unix_ns; });
    for (int i : by_start) {
      Bucket& bucket = out[std::string(TwinName(At(i))) + '\x1f' + std::to_string(InfoAt(i).rank)];
      (IsRun(At(i)) ? bucket.runs : bucket.others).push_back(i);
    }
    return out;
  }

  // Calls use(other, start difference, end difference) for the bucket's OTLP spans that may be of the same run and
  // begin within `window_ns` of it; the earliest kCandidatesMax at most.
  template <typename Use>
  void ForCandidates(const Bucket& bucket, int run, int64_t window_ns, Use use) {
    const Span& r = At(run);
    auto at = std::lower_bound(bucket.others.begin(), bucket.others.end(), r.start_unix_ns - window_ns,
                               [this](int other, int64_t from_ns) { return At(other).start_unix_ns < from_ns; });
    for (size_t seen = 0; at != bucket.others.end() && seen < kCandidatesMax; ++at, ++seen) {
      const Span& o = At(*at);
      if (o.start_unix_ns > r.start_unix_ns + window_ns) return;
      if (SameProcess(r, o) && KindsAgree(r.type, o.type)) use(*at);
    }
  }

  // How well each LangSmith trace fits each other one: a span of the trace that may be a twin counts one, and up to one
  // more by how near it is.
  void Vote(const Bucket& bucket) {
    std::unordered_map<TraceId, int64_t, model::IdHash> nearest;
    for (int run : bucket.runs) {
      const Span& r = At(run);
      nearest.clear();
      ForCandidates(bucket, run, kTwinNs, [&](int other) {
        int64_t start_ns = std::llabs(At(other).start_unix_ns - r.start_unix_ns);
        int64_t end_ns = std::llabs(At(other).end_unix_ns - r.end_unix_ns);
        if (end_ns > kTwinNs) return;
        auto [best, is_new] = nearest.try_emplace(At(other).trace_id, start_ns + end_ns);
        if (!is_new) best->second = std::min(best->second, start_ns + end_ns);
      });
      for (const auto& [trace, off_ns] : nearest) {
        votes_[r.trace_id][trace] += 2 - static_cast<double>(off_ns) / static_cast<double>(2 * kTwinNs);
      }
    }
  }

  void CountVotes() {
    for (const auto& [mine, votes] : votes_) {
      double first = 0, second = 0;
      TraceId best;
      for (const auto& [theirs, count] : votes) {
        second = std::max(second, std::min(first, count));
        if (count <= first) continue;
        first = count;
        best = theirs;
      }
      if (second <= kSecondVotesMax * first) likely_trace_[mine] = best;
    }
    votes_.clear();
  }

  void FindNearest(const Bucket& bucket) {
    for (int run : bucket.runs) {
      const Span& r = At(run);
      ForCandidates(bucket, run, kTwinNs, [&](int other) {
        int64_t start_ns = std::llabs(At(other).start_unix_ns - r.start_unix_ns);
        int64_t end_ns = std::llabs(At(other).end_unix_ns - r.end_unix_ns);
        if (end_ns > kTwinNs || !MayPair(run, other)) return;
        InfoAt(run).nearest.Take(other, start_ns + end_ns);
        InfoAt(other).nearest.Take(run, start_ns + end_ns);
      });
      // One that shares more than half of the time begins within the run's own duration of it.
      ForCandidates(bucket, run, std::max(kTwinNs, r.end_unix_ns - r.start_unix_ns),
                    [&](int other) { InfoAt(run).rivalled |= Overlap(r, At(other)); });
    }
  }

  bool MayPair(int run, int other) const {
    if (info_[static_cast<size_t>(run)].twin != kNone || info_[static_cast<size_t>(other)].twin != kNone) return false;
    const TraceId& mine = spans_[static_cast<size_t>(run)].trace_id;
    const TraceId& theirs = spans_[static_cast<size_t>(other)].trace_id;
    if (auto known = other_trace_.find(mine); known != other_trace_.end()) return known->second == theirs;
    auto likely = likely_trace_.find(mine);
    return likely == likely_trace_.end() || likely->second == theirs;
  }

  // Parents first, so that a pair can be held against the pair above it.
  void Accept() {
    std::vector<int> runs;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (IsRun(spans_[i]) && info_[i].nearest.span != kNone) runs.push_back(static_cast<int>(i));
    }
    std::stable_sort(runs.begin(), runs.end(),
                     [this](int a, int b) { return At(a).start_unix_ns < At(b).start_unix_ns; });
    for (int run : runs) {
      Info& mine = InfoAt(run);
      Info& theirs = InfoAt(mine.nearest.span);
      bool mutual = theirs.nearest.span == run && mine.nearest.IsClear() && theirs.nearest.IsClear();
      if (mutual && AgreesAbove(run, mine.nearest.span)) Pair(run, mine.nearest.span);
    }
  }

  void Pair(int run, int other) {
    InfoAt(run).twin = other;
    InfoAt(other).twin = run;
    other_trace_.try_emplace(At(run).trace_id, At(other).trace_id);
  }

  // Equal steps at the same time within two traces that belong together (a gather, a batch): both tracers saw as many,
  // so the first is the first's twin.
  void PairInOrder(const Bucket& bucket) {
    std::map<TraceId, std::vector<int>> runs;
    std::unordered_map<TraceId, std::vector<int>, model::IdHash> others;
    for (int run : bucket.runs) {
      if (InfoAt(run).twin == kNone) runs[At(run).trace_id].push_back(run);
    }
    for (int other : bucket.others) {
      if (InfoAt(other).twin == kNone) others[At(other).trace_id].push_back(other);
    }
    for (const auto& [trace, left] : runs) {
      auto known = other_trace_.find(trace);
      auto right = known == other_trace_.end() ? others.end() : others.find(known->second);
      if (right == others.end() || right->second.size() != left.size()) continue;
      for (size_t i = 0; i < left.size(); ++i) {
        const Span& run = At(left[i]);
        const Span& other = At(right->second[i]);
        bool near = std::llabs(run.start_unix_ns - other.start_unix_ns) <= kTwinNs &&
                    std::llabs(run.end_unix_ns - other.end_unix_ns) <= kTwinNs;
        if (near && MayPair(left[i], right->second[i]) && KindsAgree(run.type, other.type) &&
            AgreesAbove(left[i], right->second[i])) {
          Pair(left[i], right->second[i]);
        }
      }
    }
  }

  // Late handlers move a span by any time, not to another place: below parents that are twins, the only span of its
  // name, or the n-th of as many that came one after the other. Such spans are twins, though more than kTwinNs apart,
  // when they are of one definite kind and share more than half of their time, so that a call that one tracer lost is
  // not taken for another. Calls at once of one name (a map over a tool) are left: late handlers may have changed their
  // order. True when it paired any.
  bool PairByPlace() {
    std::map<Place, Bucket> places;
    for (size_t i = 0; i < spans_.size(); ++i) {
      const int parent = info_[i].parent;
      if (parent == kNone || InfoAt(parent).twin == kNone || IsRun(At(parent)) != IsRun(spans_[i])) continue;
      const bool is_run = IsRun(spans_[i]);
      Bucket& bucket = places[{is_run ? InfoAt(parent).twin : parent, TwinName(spans_[i])}];
      (is_run ? bucket.runs : bucket.others).push_back(static_cast<int>(i));
    }
    bool paired = false;
    for (auto& [place, bucket] : places) {
      if (bucket.runs.size() != bucket.others.size() || !InSequence(&bucket.runs) || !InSequence(&bucket.others))
        continue;
      bool agrees = true;  // with what has been paired before
      for (size_t i = 0; i < bucket.runs.size(); ++i) {
        const int run = bucket.runs[i], other = bucket.others[i];
        agrees &= InfoAt(run).twin == kNone ? InfoAt(other).twin == kNone : InfoAt(run).twin == other;
      }
      for (size_t i = 0; agrees && i < bucket.runs.size(); ++i) {
        const int run = bucket.runs[i], other = bucket.others[i];
        const Span& r = At(run);
        const Span& o = At(other);
        const bool same = r.type == o.type && r.type != SpanType::kOther && SameProcess(r, o) && Overlap(r, o);
        if (!same || InfoAt(run).twin != kNone || !MayPair(run, other)) continue;
        Pair(run, other);
        paired = true;
      }
    }
    return paired;
  }

  // Sorts them by start. Whether each has ended when the next begins, at times that can be.
  bool InSequence(std::vector<int>* spans) {
    std::stable_sort(spans->begin(), spans->end(),
                     [this](int a, int b) { return At(a).start_unix_ns < At(b).start_unix_ns; });
    for (size_t i = 0; i < spans->size(); ++i) {
      const Span& span = At((*spans)[i]);
      if (span.time_suspect || !span.complete) return false;
      if (i > 0 && span.start_unix_ns < At((*spans)[i - 1]).end_unix_ns) return false;
    }
    return true;
  }

  // The twin of the nearest run above that has one must stand above `other`; and one trace has one other trace.
  bool AgreesAbove(int run, int other) {
    auto known = other_trace_.find(At(run).trace_id);
    if (known != other_trace_.end() && known->second != At(other).trace_id) return false;
    int above = InfoAt(run).parent;
    for (int steps = 0; above != kNone && InfoAt(above).twin == kNone; ++steps) {
      if (steps >= kDepthMax) return false;
      above = InfoAt(above).parent;
    }
    if (above == kNone) return true;
    int up = InfoAt(other).parent;
    for (int steps = 0; up != kNone && steps < kDepthMax; ++steps, up = InfoAt(up).parent) {
      if (up == InfoAt(above).twin) return true;
    }
    return false;
  }

  SpanId Kept(SpanId id) const {
    auto found = stands_for_.find(id);
    return found == stands_for_.end() ? id : found->second;
  }

  void Apply() {
    for (size_t i = 0; i < spans_.size(); ++i) {
      Info& info = info_[i];
      if (!IsRun(spans_[i]) || info.twin == kNone) continue;
      TakeOver(spans_[i], &At(info.twin));
      stands_for_[spans_[i].span_id] = At(info.twin).span_id;
      info.gone = true;
      loss_->Add(Loss::kSpanTwin);
    }
    // What LangSmith alone recorded goes along; its ids are taken as they are, 64 random bits.
    for (size_t i = 0; i < spans_.size(); ++i) {
      Span& span = spans_[i];
      if (!IsRun(span)) continue;
      auto moved = other_trace_.find(span.trace_id);
      if (moved == other_trace_.end()) continue;
      if (info_[i].twin != kNone && info_[i].parent != kNone && InfoAt(info_[i].parent).twin == kNone) {
        HangUnderRun(static_cast<int>(i));
      }
      if (info_[i].gone) continue;
      span.trace_id = moved->second;
      span.parent_id = Kept(span.parent_id);
      info_[i].rivalled = false;
    }
  }

  // `run` has a twin, the run above it has none: LangSmith knows a level that OTLP does not. It is put in between when
  // nothing of OTLP stands above, or when what stands there encloses it; else it goes beside. The roots stay OTLP's.
  void HangUnderRun(int run) {
    int twin = InfoAt(run).twin;
    Span& kept = At(twin);
    int top = InfoAt(run).parent;
    int steps = 0;
    while (InfoAt(top).parent != kNone && InfoAt(InfoAt(top).parent).twin == kNone && ++steps < kDepthMax) {
      top = InfoAt(top).parent;
    }
    bool below_twin = InfoAt(top).parent != kNone;  // there the level has its place already
    if (!below_twin && kept.parent_id != 0) {
      int outer = InfoAt(twin).parent;
      bool encloses = outer != kNone && At(outer).start_unix_ns <= At(top).start_unix_ns &&
                      At(top).end_unix_ns <= At(outer).end_unix_ns;
      if (!encloses) {
        int root = twin;
        for (steps = 0; InfoAt(root).parent != kNone && steps < kDepthMax; ++steps) root = InfoAt(root).parent;
        At(top).parent_id = At(root).span_id;
        return;
      }
      At(top).parent_id = kept.parent_id;
    }
    kept.parent_id = At(InfoAt(run).parent).span_id;
  }

  // Roots that the threads' own record puts under a span of the other tracer. Where a trace has gone is told once, not
  // span by span: it may go on from there.
  void AdoptRoots() {
    std::unordered_map<SpanId, int, model::ForeignNumberHash> by_id;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (!info_[i].gone) by_id.try_emplace(spans_[i].span_id, static_cast<int>(i));
    }
    std::unordered_map<TraceId, TraceId, model::IdHash> moved_to;
    auto trace_now = [&](TraceId trace) {
      TraceId last = trace;
      for (auto at = moved_to.find(last); at != moved_to.end(); at = moved_to.find(last)) last = at->second;
      for (auto at = moved_to.find(trace); at != moved_to.end(); at = moved_to.find(trace)) {
        trace = std::exchange(at->second, last);  // the next question is answered at once
      }
      return last;
    };
    for (const model::SpanChange& change : batch_.span_changes) {
      if (change.kind != model::SpanChangeKind::kEnter || change.previous_id == 0) continue;
      auto entered = by_id.find(Kept(change.span_id));
      auto before = by_id.find(Kept(change.previous_id));
      if (entered == by_id.end() || before == by_id.end()) continue;
      Span& root = At(entered->second);
      const Span& outer = At(before->second);
      if (root.parent_id != 0 || IsRun(root) == IsRun(outer)) continue;
      const bool inside = outer.start_unix_ns <= root.start_unix_ns && root.start_unix_ns <= outer.end_unix_ns;
      const TraceId from = trace_now(root.trace_id), to = trace_now(outer.trace_id);
      if (!inside || from == to) continue;
      root.parent_id = outer.span_id;
      moved_to[from] = to;
      loss_->Add(Loss::kSpanParentMissing);
    }
    if (moved_to.empty()) return;
    for (size_t i = 0; i < spans_.size(); ++i) {
      const TraceId now = trace_now(spans_[i].trace_id);
      if (now == spans_[i].trace_id) continue;
      spans_[i].trace_id = now;
      info_[i].rivalled = false;
    }
  }

  void LeaveOutAmbiguous() {
    std::unordered_map<TraceId, bool, model::IdHash> out;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (!IsRun(spans_[i]) || info_[i].gone || spans_[i].parent_id != 0 || !info_[i].rivalled) continue;
      out[spans_[i].trace_id] = true;
      loss_->Add(Loss::kTraceTwinAmbiguous);
    }
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (IsRun(spans_[i]) && out.count(spans_[i].trace_id)) info_[i].gone = true;
    }
  }

  const model::RecordBatch& batch_;
  base::LossCounters* loss_;
  std::vector<Span> spans_;
  std::vector<Info> info_;
  std::unordered_map<SpanKey, int, SpanKeyHash> index_;
  std::unordered_map<TraceId, std::unordered_map<TraceId, double, model::IdHash>, model::IdHash> votes_;
  std::unordered_map<TraceId, TraceId, model::IdHash> likely_trace_;  // a LangSmith trace to its OTLP twin, by votes
  std::unordered_map<TraceId, TraceId, model::IdHash> other_trace_;   // the same, by a pair of spans
  decltype(MergedSpans::stands_for) stands_for_;
};

}  // namespace

MergedSpans MergeTwins(const model::RecordBatch& batch, base::LossCounters* loss) {
  bool runs = false, others = false;
  for (const Span& span : batch.spans) (IsRun(span) ? runs : others) = true;
  if (!runs || !others) return {};
  return Merger(batch, loss).Run();
}

}  // namespace tailspan::analyze
