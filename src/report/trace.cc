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

// A span path on the critical path, or an ancestor of one.
struct Row {
  std::vector<size_t> order;  // when it and its ancestors appeared first, from the root down: its place in the tree
  double own_ns = 0;
  std::vector<std::map<Cause, double>> lane;  // ns by column; empty: not shown, or no time of its own
};
using Rows = std::map<std::vector<std::string>, Row>;

// The row of each of the ledger's paths, null for those without a piece. Costs each path once, not each piece.
std::vector<Row*> MakeRows(const TraceLedger& ledger, Rows* rows) {
  std::vector<Row*> row_of(ledger.paths.size(), nullptr);
  for (const LedgerPiece& piece : ledger.pieces) {
    const auto& path = ledger.paths[piece.path];
    Row*& row = row_of[piece.path];
    for (size_t depth = 1; depth <= path.size() && (!row || row->order.size() < path.size()); ++depth) {
      const auto [at, fresh] =
          rows->try_emplace(std::vector<std::string>(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth)));
      if (fresh) {
        if (row) at->second.order = row->order;
        at->second.order.push_back(rows->size());
      }
      row = &at->second;
    }
    if (row) row->own_ns += LengthOf(piece);
  }
  return row_of;
}

void FillLane(const LedgerPiece& piece, double slice_ns, Row* row) {
  const auto start_ns = static_cast<double>(piece.start_ns), end_ns = static_cast<double>(piece.end_ns);
  const size_t columns = row->lane.size();
  for (auto c = static_cast<size_t>(start_ns / slice_ns); c < columns; ++c) {
    const double column_ns = static_cast<double>(c) * slice_ns;
    if (column_ns >= end_ns) break;
    const double from_ns = std::max(start_ns, column_ns), to_ns = std::min(end_ns, column_ns + slice_ns);
    if (to_ns > from_ns) row->lane[c][piece.cause] += to_ns - from_ns;
  }
}

// A row for each span path on the critical path, ancestors without time of their own included; each column of a lane is
// the cause that holds most of that slice of time in this span. Children stand below their parent in order of first
// appearance.
void Tree(const TraceLedger& ledger, const TextStyle& style, std::string* out) {
  const size_t columns = style.width > kNamesColumns + 22 ? style.width - kNamesColumns - 12 : 10;
  Rows rows;
  const std::vector<Row*> row_of = MakeRows(ledger, &rows);
  std::vector<Rows::value_type*> shown;
  for (auto& row : rows) shown.push_back(&row);
  std::sort(shown.begin(), shown.end(), [](const auto* a, const auto* b) { return a->second.order < b->second.order; });
  const size_t hidden = shown.size() - std::min(shown.size(), kRowsMax);
  shown.resize(shown.size() - hidden);
  for (auto* row : shown) row->second.lane.resize(columns);
  for (const LedgerPiece& piece : ledger.pieces) {
    if (Row* row = row_of[piece.path]) {
      FillLane(piece, static_cast<double>(ledger.duration_ns) / static_cast<double>(columns), row);
    }
  }
  *out += "\nSpans on the critical path\n";
  for (const auto* row : shown) {
    std::string lane;
    for (const auto& slot : row->second.lane) {
      const auto most =
          std::max_element(slot.begin(), slot.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      lane += most == slot.end() ? '.' : Letter(most->first);
    }
    const std::string name = std::string(2 * std::min<size_t>(row->first.size(), 10), ' ') + row->first.back();
    *out += fmt::format("{}{:>10} {}\n", FitText(name, kNamesColumns, true), DurationText(row->second.own_ns), lane);
  }
  if (hidden) *out += fmt::format("  and {} more spans\n", hidden);
}

void Pieces(const TraceLedger& ledger, const TextStyle& style, std::string* out) {
  const std::vector<LedgerPiece> pieces = Merged(ledger);
  double shortest_shown = 0;
  size_t shortest_left = pieces.size();  // of those of that very length
  if (pieces.size() > kPiecesShownMax) {
    std::vector<double> lengths;
    for (const LedgerPiece& piece : pieces) lengths.push_back(LengthOf(piece));
    std::nth_element(lengths.begin(), lengths.begin() + kPiecesShownMax - 1, lengths.end(), std::greater<>());
    shortest_shown = lengths[kPiecesShownMax - 1];
    const auto longer = std::count_if(lengths.begin(), lengths.end(), [&](double ns) { return ns > shortest_shown; });
    shortest_left = kPiecesShownMax - static_cast<size_t>(longer);
  }
  *out += "\n        at      took  cause          span\n";
  double hidden_ns = 0;
  size_t hidden = 0;
  for (const LedgerPiece& piece : pieces) {
    const bool shows = LengthOf(piece) > shortest_shown || (LengthOf(piece) == shortest_shown && shortest_left > 0);
    if (LengthOf(piece) == shortest_shown && shortest_left > 0) --shortest_left;
    if (!shows) {
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
  std::string out = fmt::format("{}  {}  trace {}{}\n", FitText(ledger.operation, style.width < 110 ? 24 : 60, false),
                                DurationText(static_cast<double>(ledger.duration_ns)), model::ToHex(ledger.trace_id),
                                ledger.failed ? "  FAILED" : "");
  if (ledger.duration_ns <= 0) return out;
  Causes(ledger, &out);
  Tree(ledger, style, &out);
  Pieces(ledger, style, &out);
  return out;
}

}  // namespace tailspan::report
