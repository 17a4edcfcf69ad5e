#include "report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json_writer.h"
#include "base/text.h"
#include "report/names.h"

namespace tailspan::report {
namespace {

using base::DurationText;
using model::Cause;
using model::LedgerPiece;
using model::TraceLedger;

constexpr size_t kPiecesShownMax = 60;  // the longest, in order of time; all are in the JSON
constexpr size_t kRowsMax = 60;         // spans in the tree
constexpr size_t kNamesColumns = 36;

// One letter for a cause in the lanes; capitals are waits for others inside the service.
char Letter(Cause cause) {
  static constexpr std::pair<Cause, char> kLetters[] = {
      {Cause::kOnCpu, '#'},    {Cause::kRunQueue, 'R'},   {Cause::kCpuThrottled, 'T'}, {Cause::kGil, 'G'},
      {Cause::kLock, 'L'},     {Cause::kEventLoop, 'E'},  {Cause::kQueue, 'Q'},        {Cause::kPageFault, 'f'},
      {Cause::kDiskRead, 'd'}, {Cause::kDiskWrite, 'w'},  {Cause::kNetConnect, 'c'},   {Cause::kDns, 'a'},
      {Cause::kNetSend, 's'},  {Cause::kNetRecv, 'n'},    {Cause::kNetEdge, 'e'},      {Cause::kRetransmit, 'x'},
      {Cause::kGpuSync, 'g'},  {Cause::kGpuCopy, 'g'},    {Cause::kGpuLaunch, 'g'},    {Cause::kGc, 'C'},
      {Cause::kSleep, 'z'},    {Cause::kIpc, 'p'},        {Cause::kChildProcess, 'k'}, {Cause::kIrqSteal, 'i'},
      {Cause::kStopped, 'S'},  {Cause::kUnexplained, '?'}};
  for (const auto& [known, letter] : kLetters) {
    if (known == cause) return letter;
  }
  return '?';
}

const std::string& SpanOf(const TraceLedger& ledger, const LedgerPiece& piece) {
  const auto& path = ledger.paths[piece.path];
  return path.empty() ? ledger.operation : path.back();
}

double LengthOf(const LedgerPiece& piece) { return static_cast<double>(piece.end_ns - piece.start_ns); }

std::string BlameNote(const LedgerPiece& piece) {
  if (piece.blame.kind == model::BlameKind::kNone || piece.blame.kind == model::BlameKind::kSelf) return "";
  std::string text = "<- " + model::BlameText(piece.blame);
  if (!piece.blame.detail.empty()) text += ", " + piece.blame.detail;
  if (!piece.evidence.empty()) text += " (" + piece.evidence + ")";
  return text;
}

// Neighbours that differ in nothing that is shown.
std::vector<LedgerPiece> Merged(const TraceLedger& ledger) {
  std::vector<LedgerPiece> out;
  for (const LedgerPiece& piece : ledger.pieces) {
    if (!out.empty()) {
      LedgerPiece& last = out.back();
      if (last.path == piece.path && last.cause == piece.cause && last.blame.kind == piece.blame.kind &&
          last.blame.name == piece.blame.name && last.blame.detail == piece.blame.detail &&
          last.evidence == piece.evidence) {
        last.end_ns = piece.end_ns;
        last.summed |= piece.summed;
        continue;
      }
    }
    out.push_back(piece);
  }
  return out;
}

void Causes(const TraceLedger& ledger, std::string* out) {
  std::map<Cause, double> by_cause;
  for (const LedgerPiece& piece : ledger.pieces) by_cause[piece.cause] += LengthOf(piece);
  std::vector<std::pair<double, Cause>> order;
  for (const auto& [cause, ns] : by_cause) order.emplace_back(ns, cause);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  *out += "\nBy cause (letter in the lanes below)\n";
  for (const auto& [ns, cause] : order) {
    *out += fmt::format("  {} {:<14}{:>10}{:>6.1f} %\n", Letter(cause), model::CauseName(cause), DurationText(ns),
                        ns / static_cast<double>(ledger.duration_ns) * 100);
  }
}

// A row for each span path on the critical path, ancestors without time of their own included; each column of a lane is
// the cause that holds most of that slice of time in this span.
void Tree(const TraceLedger& ledger, const TextStyle& style, std::string* out) {
  const size_t columns = style.width > kNamesColumns + 22 ? style.width - kNamesColumns - 12 : 10;
  std::vector<std::vector<std::string>> rows;
  std::map<std::vector<std::string>, std::vector<std::map<Cause, double>>> lanes;
  std::map<std::vector<std::string>, double> own_ns;
  const double slice = static_cast<double>(ledger.duration_ns) / static_cast<double>(columns);
  for (const LedgerPiece& piece : ledger.pieces) {
    const auto& path = ledger.paths[piece.path];
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      const std::vector<std::string> ancestor(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth));
      if (lanes.try_emplace(ancestor, columns).second) rows.push_back(ancestor);
    }
    if (path.empty()) continue;
    own_ns[path] += LengthOf(piece);
    auto& lane = lanes[path];
    const auto first = static_cast<size_t>(static_cast<double>(piece.start_ns) / slice);
    for (size_t c = first; c < columns && static_cast<double>(c) * slice < static_cast<double>(piece.end_ns); ++c) {
      const double from = std::max(static_cast<double>(piece.start_ns), static_cast<double>(c) * slice);
      const double to = std::min(static_cast<double>(piece.end_ns), static_cast<double>(c + 1) * slice);
      if (to > from) lane[c][piece.cause] += to - from;
    }
  }
  *out += "\nSpans on the critical path\n";
  // Depth first: children stand below their parent in order of first appearance.
  std::map<std::vector<std::string>, size_t> seen_at;
  for (size_t i = 0; i < rows.size(); ++i) seen_at[rows[i]] = i;
  std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
    const size_t common = std::min(a.size(), b.size());
    for (size_t d = 1; d <= common; ++d) {
      const auto end = static_cast<std::ptrdiff_t>(d);
      const size_t x = seen_at[{a.begin(), a.begin() + end}], y = seen_at[{b.begin(), b.begin() + end}];
      if (x != y) return x < y;
    }
    return a.size() < b.size();
  });
  for (size_t i = 0; i < std::min(rows.size(), kRowsMax); ++i) {
    std::string lane;
    for (const auto& slot : lanes[rows[i]]) {
      const auto most =
          std::max_element(slot.begin(), slot.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      lane += most == slot.end() ? '.' : Letter(most->first);
    }
    const std::string name = std::string(2 * std::min<size_t>(rows[i].size(), 10), ' ') + rows[i].back();
    *out += fmt::format("{}{:>10} {}\n", FitText(name, kNamesColumns, true), DurationText(own_ns[rows[i]]), lane);
  }
  if (rows.size() > kRowsMax) *out += fmt::format("  and {} more spans\n", rows.size() - kRowsMax);
}

void Pieces(const TraceLedger& ledger, const TextStyle& style, std::string* out) {
  const std::vector<LedgerPiece> pieces = Merged(ledger);
  double shortest_shown = 0;
  if (pieces.size() > kPiecesShownMax) {
    std::vector<double> lengths;
    for (const LedgerPiece& piece : pieces) lengths.push_back(LengthOf(piece));
    std::nth_element(lengths.begin(), lengths.begin() + kPiecesShownMax - 1, lengths.end(), std::greater<>());
    shortest_shown = lengths[kPiecesShownMax - 1];
  }
  *out += "\n        at      took  cause          span\n";
  double hidden_ns = 0;
  size_t hidden = 0;
  for (const LedgerPiece& piece : pieces) {
    if (LengthOf(piece) < shortest_shown) {
      hidden_ns += LengthOf(piece);
      ++hidden;
      continue;
    }
    std::string line = fmt::format("{:>10}{:>10}{} {:<14} {} {}", DurationText(static_cast<double>(piece.start_ns)),
                                   DurationText(LengthOf(piece)), piece.summed ? "~" : " ",
                                   model::CauseName(piece.cause), SpanOf(ledger, piece), BlameNote(piece));
    while (line.back() == ' ') line.pop_back();
    *out += FitText(line, style.width, false) + "\n";
  }
  if (hidden)
    *out += fmt::format("  {} shorter pieces, {} together, are in --format json\n", hidden, DurationText(hidden_ns));
  *out += "  ~: somewhere in this small window, known as a sum\n";
}

}  // namespace

std::string RenderTraceJson(const TraceLedger& ledger) {
  base::JsonWriter w;
  w.BeginObject().Key("schema").String("tailspan.trace/1").Key("trace_id").String(model::ToHex(ledger.trace_id));
  w.Key("root").String(ledger.operation).Key("root_span_id").String(model::ToHex(ledger.root_id));
  w.Key("start_unix_ns").Int(ledger.start_unix_ns).Key("duration_ns").Int(ledger.duration_ns);
  w.Key("failed").Bool(ledger.failed).Key("revision").Int(ledger.revision).Key("ledger").BeginArray();
  for (const LedgerPiece& piece : ledger.pieces) {
    w.BeginObject().Key("start_ns").Int(piece.start_ns).Key("end_ns").Int(piece.end_ns);
    w.Key("span_id").String(model::ToHex(piece.span_id)).Key("span").String(SpanOf(ledger, piece));
    w.Key("span_path").BeginArray();
    for (const std::string& name : ledger.paths[piece.path]) w.String(name);
    w.EndArray().Key("cause").String(model::CauseName(piece.cause));
    w.Key("blame").BeginObject().Key("kind").String(model::BlameKindName(piece.blame.kind));
    w.Key("name").String(piece.blame.name).Key("detail").String(piece.blame.detail);
    w.Key("how").String(piece.blame.how).Key("confidence").Double(piece.blame.confidence);
    if (piece.blame.trace_id) w.Key("trace_id").String(model::ToHex(piece.blame.trace_id));
    if (piece.blame.span_id) w.Key("span_id").String(model::ToHex(piece.blame.span_id));
    w.EndObject().Key("placed").String(piece.summed ? "summed" : "exact");
    w.Key("join").String(model::JoinName(piece.join)).Key("evidence").String(piece.evidence).EndObject();
  }
  w.EndArray().EndObject();
  return w.text();
}

std::string RenderTraceText(const TraceLedger& ledger, const TextStyle& style) {
  std::string out = fmt::format("{}  {}  trace {}{}\n", FitText(ledger.operation, 60, false),
                                DurationText(static_cast<double>(ledger.duration_ns)), model::ToHex(ledger.trace_id),
                                ledger.failed ? "  FAILED" : "");
  if (ledger.duration_ns <= 0) return out;
  Causes(ledger, &out);
  Tree(ledger, style, &out);
  Pieces(ledger, style, &out);
  return out;
}

}  // namespace tailspan::report
