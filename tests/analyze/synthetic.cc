#include "synthetic.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

namespace tailspan::synthetic {
namespace {

using model::BlameKind;
using model::Cause;

struct Busy {  // the loop at work, or the GIL held by the other thread
  int64_t from_ns, to_ns;
  const char* name;  // of the span at work
  uint64_t who;      // whose it is
  bool hold;
};

struct Ready {
  int64_t at_ns;
  uint32_t request;
  int step;
  bool operator>(const Ready& other) const {
    return std::tie(at_ns, request, step) > std::tie(other.at_ns, other.request, other.step);
  }
};

class World {
 public:
  explicit World(const Service& service) : s_(service), rng_(service.seed) {}

  std::vector<model::TraceLedger> Run() {
    Arrive();
    MakeHolds();
    while (!ready_.empty()) {
      const Ready next = ready_.top();
      ready_.pop();
      Serve(next);
    }
    for (model::TraceLedger& ledger : out_) ledger.duration_ns = ledger.pieces.back().end_ns;
    AddUploads();
    return std::move(out_);
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(rng_); }
  double Normal() { return std::normal_distribution<double>(0, 1)(rng_); }
  int64_t StepNs() {
    const double ms = s_.law == StepLaw::kExponential
                          ? -s_.step_ms * std::log(1 - Uniform())
                          : s_.step_ms * std::exp(s_.sigma * Normal() - s_.sigma * s_.sigma / 2);
    return std::max<int64_t>(1000, std::llround(ms * 1e6));
  }

  void Arrive() {
    const double rate = s_.load / (s_.steps * s_.step_ms * 1e6);  // a nanosecond
    double at_ns = 0;
    for (uint32_t i = 0; i < s_.requests; ++i) {
      if (i == 0 || Uniform() < 1 / s_.burst) at_ns += -s_.burst / rate * std::log(1 - Uniform());
      model::TraceLedger ledger;
      ledger.trace_id = {s_.seed, i + 1};
      ledger.root_id = i + 1;
      ledger.operation = "POST /ask";
      ledger.start_unix_ns = static_cast<int64_t>(at_ns);
      ledger.size = std::exp(0.8 * Normal());
      ledger.paths = {{"POST /ask"}, {"POST /ask", "retrieve"}};
      out_.push_back(ledger);
      ready_.push({ledger.start_unix_ns, i, 0});
    }
    end_ns_ = static_cast<int64_t>(at_ns);
  }

  void MakeHolds() {
    if (s_.holds_per_second <= 0) return;
    for (double at_ns = 0;;) {
      at_ns += -1e9 / s_.holds_per_second * std::log(1 - Uniform());
      if (at_ns > static_cast<double>(end_ns_)) return;
      const int64_t length_ns = std::llround(s_.hold_ms * (0.7 + 0.6 * Uniform()) * 1e6);
      holds_.push_back({static_cast<int64_t>(at_ns), static_cast<int64_t>(at_ns) + length_ns, "chunk", 0, true});
      at_ns += static_cast<double>(length_ns);
    }
  }

  void Add(uint32_t request, int64_t length_ns, uint32_t path, Cause cause, BlameKind kind, const char* name,
           double confidence = 0.95) {
    if (length_ns <= 0) return;
    auto& pieces = out_[request].pieces;
    model::LedgerPiece piece;
    piece.start_ns = pieces.empty() ? 0 : pieces.back().end_ns;
    piece.end_ns = piece.start_ns + length_ns;
    piece.path = path;
    piece.span_id = path + 1;
    piece.cause = cause;
    piece.blame.kind = kind;
    piece.blame.name = name;
    piece.blame.how = "simulated";
    piece.blame.confidence = confidence;
    piece.join = model::Join::kThreadContext;
    pieces.push_back(std::move(piece));
  }

  // One loop step of a request; then its wait for the peer, and the next step becomes ready.
  void Serve(const Ready& next) {
    int64_t start_ns = std::max(next.at_ns, free_ns_);
    while (hold_ < holds_.size() && holds_[hold_].to_ns <= start_ns) busy_.push_back(holds_[hold_++]);
    if (hold_ < holds_.size() && holds_[hold_].from_ns <= start_ns) {
      start_ns = holds_[hold_].to_ns;
      busy_.push_back(holds_[hold_++]);
    }
    const uint32_t path = next.step == 0 ? 0 : 1;
    Wait(next.request, path, next.at_ns, start_ns);
    int64_t work_ns = StepNs();
    Add(next.request, work_ns, path, Cause::kOnCpu, BlameKind::kSelf, "");
    if (next.step == 0 && Uniform() < s_.block_share) {
      const int64_t block_ns = std::llround(s_.block_ms * (0.7 + 0.6 * Uniform()) * 1e6);
      Add(next.request, block_ns, path, Cause::kDiskRead, BlameKind::kFile, "prompt.txt");
      work_ns += block_ns;
    }
    busy_.push_back({start_ns, start_ns + work_ns, path ? "retrieve" : "POST /ask", next.request + 1, false});
    free_ns_ = start_ns + work_ns;
    if (next.step + 1 < s_.steps) Peer(next, free_ns_);
  }

  void Peer(const Ready& next, int64_t from_ns) {
    int64_t length_ns = 0;
    if (next.step == 0 && Uniform() < s_.pause_share) {
      const int64_t pause_ns = std::llround(s_.pause_ms * (0.7 + 0.6 * Uniform()) * 1e6);
      Add(next.request, pause_ns, 1, Cause::kPageFault, BlameKind::kFile, "index.faiss");
      length_ns += pause_ns;
    }
    const double size_ms = s_.size_ms_per_unit * out_[next.request].size;
    const int64_t peer_ns = std::llround((s_.peer_ms * std::exp(s_.peer_sigma * Normal()) + size_ms) * 1e6);
    const auto dark_ns = static_cast<int64_t>(s_.unexplained_share * static_cast<double>(peer_ns));
    Add(next.request, peer_ns - dark_ns, 1, Cause::kNetRecv, BlameKind::kPeer, "chroma");
    Add(next.request, dark_ns, 1, Cause::kUnexplained, BlameKind::kNone, "", 0);
    ready_.push({from_ns + length_ns + peer_ns, next.request, next.step + 1});
  }

  // What the loop and the GIL were doing while this request stood ready.
  void Wait(uint32_t request, uint32_t path, int64_t from_ns, int64_t to_ns) {
    size_t i = busy_.size();
    while (i > 0 && busy_[i - 1].to_ns > from_ns) --i;
    for (int64_t at_ns = from_ns; at_ns < to_ns; ++i) {
      const bool known = i < busy_.size();
      if (known && busy_[i].from_ns > at_ns) {  // idle between: the loop's own
        const int64_t until_ns = std::min(to_ns, busy_[i].from_ns);
        Add(request, until_ns - at_ns, path, Cause::kEventLoop, BlameKind::kSpan, "POST /ask");
        at_ns = until_ns;
      }
      const int64_t until_ns = known ? std::min(to_ns, busy_[i].to_ns) : to_ns;
      if (until_ns <= at_ns) continue;
      const bool hold = known && busy_[i].hold;
      Add(request, until_ns - at_ns, path, hold ? Cause::kGil : Cause::kEventLoop, BlameKind::kSpan,
          known ? busy_[i].name : "POST /ask");
      if (known) out_[request].pieces.back().blame.trace_id = {s_.seed, busy_[i].who};
      at_ns = until_ns;
    }
  }

  void AddUploads() {
    for (size_t i = 0; i < holds_.size(); ++i) {
      out_.emplace_back();
      model::TraceLedger& ledger = out_.back();
      ledger.trace_id = {s_.seed + 1'000'000, i + 1};
      ledger.operation = "POST /upload";
      ledger.start_unix_ns = holds_[i].from_ns;
      ledger.paths = {{"POST /upload"}, {"POST /upload", "chunk"}};
      Add(static_cast<uint32_t>(out_.size() - 1), holds_[i].to_ns - holds_[i].from_ns, 1, Cause::kOnCpu,
          BlameKind::kSelf, "");
      ledger.duration_ns = ledger.pieces.back().end_ns;
    }
  }

  const Service& s_;
  std::mt19937_64 rng_;
  std::vector<model::TraceLedger> out_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  std::vector<Busy> holds_, busy_;
  size_t hold_ = 0;
  int64_t free_ns_ = 0, end_ns_ = 0;
};

}  // namespace

std::vector<model::TraceLedger> Simulate(const Service& service) { return World(service).Run(); }

}  // namespace tailspan::synthetic
