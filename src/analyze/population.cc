#include "analyze/population.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace tailspan::analyze {
namespace {

constexpr char kSeparator = '\x1f';

struct PieceKey {
  uint32_t path;
  model::Cause cause;
  model::BlameKind kind;
  std::string_view name;
  bool operator==(const PieceKey&) const = default;
};

struct PieceKeyHash {
  size_t operator()(const PieceKey& key) const {
    const size_t small =
        (size_t{key.path} << 16) | (static_cast<size_t>(key.cause) << 8) | static_cast<size_t>(key.kind);
    return std::hash<std::string_view>()(key.name) ^ (small * 0x9E3779B97F4A7C15ull);
  }
};

std::string JoinPath(const std::vector<std::string>& path) {
  std::string out;
  for (const std::string& name : path) (out += name) += kSeparator;
  return out;
}

class Builder {
 public:
  explicit Builder(Population* out) : out_(out) {}

  void Add(const model::TraceLedger& ledger) {
    path_of_.clear();
    for (const auto& path : ledger.paths) path_of_.push_back(Path(path));
    out_->row_begin.push_back(out_->cells.size());
    for (const model::LedgerPiece& piece : ledger.pieces) {
      const uint32_t component = ComponentOf(piece);
      if (component >= last_cell_.size()) last_cell_.resize(component + 1, 0);
      size_t& cell = last_cell_[component];  // 1-based position of this request's cell
      if (cell <= out_->row_begin.back()) {
        out_->cells.push_back({component, 0});
        cell = out_->cells.size();
      }
      out_->cells[cell - 1].ns += static_cast<double>(piece.end_ns - piece.start_ns);
    }
  }

  void MakeGroups() {
    std::unordered_map<std::string, uint32_t> by_key;
    for (uint32_t i = 0; i < out_->components.size(); ++i) {
      Component& c = out_->components[i];
      const bool shared = BlamesOther(c.blame_kind);
      const std::string key =
          ComponentKey(shared ? std::vector<std::string>{} : out_->paths[c.path], c.cause, c.blame_kind, c.blame_name);
      const auto [at, fresh] = by_key.try_emplace(key, static_cast<uint32_t>(out_->groups.size()));
      if (fresh) out_->groups.push_back({c.cause, {}});
      c.group = at->second;
      out_->groups[c.group].components.push_back(i);
    }
  }

 private:
  uint32_t Path(const std::vector<std::string>& path) {
    const auto [at, fresh] = paths_.try_emplace(JoinPath(path), static_cast<uint32_t>(out_->paths.size()));
    if (fresh) out_->paths.push_back(path);
    return at->second;
  }

  uint32_t ComponentOf(const model::LedgerPiece& piece) {
    const PieceKey key{path_of_[piece.path], piece.cause, piece.blame.kind, piece.blame.name};
    const auto at = components_.find(key);
    if (at != components_.end()) return at->second;
    const auto id = static_cast<uint32_t>(out_->components.size());
    out_->components.push_back({key.path, key.cause, key.kind, piece.blame.name, 0});
    components_.emplace(key, id);  // the key's name is borrowed from the ledger, which outlives this
    return id;
  }

  Population* out_;
  std::vector<uint32_t> path_of_;
  std::vector<size_t> last_cell_;
  std::unordered_map<std::string, uint32_t> paths_;
  std::unordered_map<PieceKey, uint32_t, PieceKeyHash> components_;
};

}  // namespace

bool BlamesOther(model::BlameKind kind) {
  switch (kind) {
    case model::BlameKind::kNone:
    case model::BlameKind::kSelf:
    case model::BlameKind::kTimer:
      return false;
    default:
      return true;
  }
}

std::string ComponentKey(const std::vector<std::string>& path, model::Cause cause, model::BlameKind kind,
                         const std::string& name) {
  std::string key = JoinPath(path);
  ((key += model::CauseName(cause)) += kSeparator) += model::BlameKindName(kind);
  return (key += kSeparator) += name;
}

Population BuildPopulation(const std::vector<model::TraceLedger>& ledgers, const std::string& operation, bool failed) {
  Population out;
  out.operation = operation;
  for (const model::TraceLedger& ledger : ledgers) {
    if (ledger.operation == operation && ledger.failed == failed && ledger.duration_ns > 0) {
      out.requests.push_back(&ledger);
    }
  }
  std::sort(out.requests.begin(), out.requests.end(), [](const model::TraceLedger* a, const model::TraceLedger* b) {
    return std::tie(a->duration_ns, a->start_unix_ns, a->trace_id, a->root_id) <
           std::tie(b->duration_ns, b->start_unix_ns, b->trace_id, b->root_id);
  });
  Builder builder(&out);
  for (const model::TraceLedger* ledger : out.requests) {
    builder.Add(*ledger);
    out.total_ns.push_back(static_cast<double>(ledger->duration_ns));
    out.weights.push_back(ledger->weight > 0 ? ledger->weight : 1);
    out.weight_sum += out.weights.back();
    out.weighted |= out.weights.back() != 1;
  }
  out.row_begin.push_back(out.cells.size());
  builder.MakeGroups();
  out.arrivals.resize(out.size());
  std::iota(out.arrivals.begin(), out.arrivals.end(), 0u);
  std::stable_sort(out.arrivals.begin(), out.arrivals.end(), [&](uint32_t a, uint32_t b) {
    return out.requests[a]->start_unix_ns < out.requests[b]->start_unix_ns;
  });
  return out;
}

}  // namespace tailspan::analyze
