#include "report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/loss.h"
#include "base/text.h"
#include "report/names.h"

namespace tailspan::report {
namespace {

using base::DurationText;
using base::PercentText;
using model::Explanation;
using model::Finding;

constexpr size_t kLedgerLinesMax = 10;  // larger answers are in the JSON
constexpr int kDetailedMax = 3;         // groups with evidence, when there is a fault
constexpr size_t kOperationsMax = 5;
constexpr size_t kColumnsOfNumbers = 42;  // typical, tail, excess, share

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kRed = "\x1b[1;31m";
constexpr const char* kGreen = "\x1b[1;32m";
constexpr const char* kYellow = "\x1b[1;33m";
constexpr const char* kDim = "\x1b[2m";

class TextReport {
 public:
  TextReport(const Explanation& e, const TextStyle& style) : e_(e), style_(style) {}

  std::string Run() {
    Verdict();
    if (e_.tail_ns > 0) {
      Ledger();
      Details();
    }
    Limits();
    return std::move(out_);
  }

 private:
  std::string Paint(const char* colour, const std::string& text) const {
    return style_.colour ? colour + text + "\x1b[0m" : text;
  }
  void Line(const std::string& text) { (out_ += text) += '\n'; }
  void Wrapped(const std::string& first, const std::string& text) { Line(WrapText(first, text, style_.width)); }
  // What the figure of the what-if assumes.
  std::string Without() const {
    if (e_.reference == "slo") return "cut to its part of the target,";
    return e_.reference == "baseline" ? "cut to its time in the baseline," : "without it";
  }
  std::string Tail() const { return fmt::format("P{:g}", e_.quantile * 100); }

  void Verdict() {
    const char* colour = kYellow;
    std::string word = "NOT ENOUGH DATA";
    if (e_.verdict == model::Verdict::kFault) colour = kRed, word = "FAULT";
    if (e_.verdict == model::Verdict::kHealthy) colour = kGreen, word = "HEALTHY";
    std::string head = FitText(e_.operation, style_.width < 100 ? 24 : 40, false);
    if (e_.tail_ns > 0) {
      head += fmt::format(": {} is {}, {} {}", Tail(), DurationText(e_.tail_ns),
                          e_.reference == "typical" ? "typical" : e_.reference, DurationText(e_.typical_ns));
    }
    Line(Paint(colour, word) + (head.empty() ? "" : "  " + Paint(kBold, head)));
    Wrapped("  ", e_.verdict_reason);
    if (e_.verdict == model::Verdict::kFault) {
      const Finding& f = e_.findings.front();
      if (f.has_what_if) {
        std::string without = Without();
        without.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(without.front())));
        Line(fmt::format("  {} {} would be {} ({} to {}).", without, Tail(),
                         Paint(kBold, DurationText(f.what_if_tail_ns)), DurationText(f.what_if_ci95_ns.low),
                         DurationText(f.what_if_ci95_ns.high)));
      }
      Wrapped("  Fix: ", f.fix + ".");
    }
    Line("");
  }

  // Columns: mark, cause, span <- blame, typical, tail, excess, share, bar.
  void Ledger() {
    const size_t bar_columns = style_.width < 100 ? 0 : 16;  // names before bars
    const size_t names = style_.width - kColumnsOfNumbers - (bar_columns ? bar_columns + 2 : 0);
    Line(Paint(kDim, FitText(fmt::format("  From the {} to {}",
                                         e_.reference == "typical" ? "typical request" : e_.reference, Tail()),
                             names, true) +
                         fmt::format("{:>10}{:>10}{:>11}{:>8}", e_.reference, Tail(), "more", "share")));
    Finding others = e_.rest;
    const size_t shown = std::min(e_.findings.size(), kLedgerLinesMax);
    for (size_t i = 0; i < e_.findings.size(); ++i) {
      const Finding& f = e_.findings[i];
      if (i >= shown) {
        others.typical_ns += f.typical_ns;
        others.tail_ns += f.tail_ns;
        others.excess_ns += f.excess_ns;
        others.share_of_excess += f.share_of_excess;
        continue;
      }
      const bool fault =
          f.is_fault || (f.group_rank > 0 && static_cast<size_t>(f.group_rank) <= i && LeadOf(f).is_fault);
      LedgerLine(fmt::format("{} {:<13} {}", f.is_fault ? "!" : " ", model::CauseName(f.cause), SpanAndBlame(f)), f,
                 names, bar_columns, fault ? kRed : nullptr);
    }
    const size_t left = e_.findings.size() - shown;
    LedgerLine(left ? fmt::format("  rest, and {} more lines", left) : "  rest, below 1 % each", others, names,
               bar_columns, kDim);
    Finding sum;
    sum.typical_ns = e_.typical_ns;
    sum.tail_ns = e_.tail_ns;
    sum.excess_ns = e_.excess_ns;
    sum.share_of_excess = e_.excess_ns > 0 ? 1 : 0;
    LedgerLine("  sum", sum, names, 0, kBold);
    Wrapped("  ", fmt::format("{} requests, {} errors; {} beyond {} (95 %: {} to {}), on average {}", e_.requests,
                              e_.errors, e_.requests_beyond, Tail(), DurationText(e_.tail_ci95_ns.low),
                              DurationText(e_.tail_ci95_ns.high), DurationText(e_.shortfall_ns)));
    Line("");
  }

  const Finding& LeadOf(const Finding& f) const { return e_.findings[static_cast<size_t>(f.group_rank) - 1]; }

  static std::string SpanAndBlame(const Finding& f) {
    std::string text = f.span;
    if (f.blame.kind != model::BlameKind::kNone && f.blame.kind != model::BlameKind::kSelf) {
      text += " <- " + model::BlameText(f.blame);
    }
    return text;
  }

  void LedgerLine(const std::string& name, const Finding& f, size_t names, size_t bar_columns, const char* colour) {
    std::string line = FitText(name, names, true);
    line += fmt::format("{:>10}{:>10}{:>11}{:>8}", DurationText(f.typical_ns), DurationText(f.tail_ns),
                        (f.excess_ns < 0 ? "" : "+") + DurationText(f.excess_ns), PercentText(f.share_of_excess));
    const auto filled =
        static_cast<size_t>(std::lround(std::clamp(f.share_of_excess, 0.0, 1.0) * static_cast<double>(bar_columns)));
    line += "  ";
    for (size_t i = 0; i < filled; ++i) line += "█";
    while (line.back() == ' ') line.pop_back();
    Line(colour ? Paint(colour, line) : line);
  }

  void Details() {
    const int most = e_.verdict == model::Verdict::kFault ? kDetailedMax : 1;
    int shown = 0;
    for (const Finding& f : e_.findings) {
      if (f.rank != f.group_rank || shown == most) continue;
      if (shown > 0 && !f.is_fault && f.group_share_of_excess < 0.1 && f.group_share_of_shortfall < 0.1) continue;
      ++shown;
      Detail(f);
    }
  }

  void Detail(const Finding& f) {
    const std::string head = fmt::format("#{} {} ({})", f.rank, f.pattern, model::CauseName(f.cause));
    const std::string spans = f.group_lines > 1 ? fmt::format("; {} spans, most in `{}`", f.group_lines, f.span) : "";
    const std::string heading =
        WrapText(head + "  ",
                 fmt::format("{} of the excess at {}, {} beyond it{}", PercentText(f.group_share_of_excess), Tail(),
                             PercentText(f.group_share_of_shortfall), spans),
                 style_.width);
    Line(Paint(kBold, head) + heading.substr(head.size()));
    if (!f.span_path.empty()) Wrapped("   where    ", Join(f.span_path));
    if (!f.blame.detail.empty()) Wrapped("   who      ", model::BlameText(f.blame) + ": " + f.blame.detail);
    for (const auto& text : f.evidence_for) Wrapped("   for      ", text);
    for (const auto& text : f.evidence_against) Wrapped("   against  ", text);
    for (const auto& text : f.missing) Wrapped("   missing  ", text);
    if (!f.is_fault && f.has_what_if) {
      Wrapped("   what if  ",
              fmt::format("{} {} would be {} ({} to {})", Without(), Tail(), DurationText(f.what_if_tail_ns),
                          DurationText(f.what_if_ci95_ns.low), DurationText(f.what_if_ci95_ns.high)));
    }
    const std::string look = ReproduceCommand(e_, f);
    if (!look.empty()) Line("   look     " + base::CleanText(look));
    Line("");
  }

  static std::string Join(const std::vector<std::string>& path) {
    std::string text;
    for (const std::string& name : path) text += (text.empty() ? "" : " > ") + FitText(name, 60, false);
    return text;
  }

  void Limits() {
    if (e_.tail_ns > 0) {
      Wrapped("Explained: ",
              fmt::format("{:.1f} % of the tail's time; unexplained {:.1f} %, no one to blame {:.1f} %, only as sums "
                          "{:.1f} %",
                          e_.explained_share_of_tail * 100, e_.unexplained_share * 100, e_.unblamed_share * 100,
                          e_.summed_share * 100));
      std::string joined;
      for (const auto& [way, share] : e_.join) {
        if (share >= 0.0005) joined += fmt::format("{}{} {:.1f} %", joined.empty() ? "" : ", ", way, share * 100);
      }
      if (!joined.empty()) Wrapped("Joined by: ", joined);
    }
    if (e_.cpu_book.measured_ns > 0) {
      Wrapped("CPU time: ",
              fmt::format("{} measured, {:+.1f} % in the scheduler's own book",
                          DurationText(static_cast<double>(e_.cpu_book.measured_ns)), e_.cpu_book.difference() * 100));
    }
    for (const std::string& note : e_.notes) Wrapped("Note: ", note);
    for (const auto& [name, count] : e_.loss) {
      if (count == 0) continue;
      const auto loss = base::LossByName(name);
      const bool by_design = loss && base::Describe(*loss).severity == base::Severity::kInfo;
      const std::string remedy = loss ? fmt::format(" ({})", base::Describe(*loss).remedy) : "";
      Wrapped(by_design ? "Seen: " : "Lost: ", fmt::format("{} {}{}", name, count, remedy));
    }
    for (const model::Capability& c : e_.capabilities) {
      if (!c.on)
        Wrapped("Off:  ", fmt::format("{}: {}{}", c.signal, c.reason, c.remedy.empty() ? "" : "; " + c.remedy));
    }
    Operations();
  }

  void Operations() {
    if (e_.operations.size() < 2) return;
    std::string text;
    for (size_t i = 0; i < std::min(kOperationsMax, e_.operations.size()); ++i) {
      const model::OperationSummary& o = e_.operations[i];
      text +=
          fmt::format("{}{} ({} requests{}, {} late in sum)", i ? "; " : "", FitText(o.operation, 40, false),
                      o.requests, o.enough_requests ? "" : ", too few for a verdict", DurationText(o.excess_total_ns));
    }
    if (e_.operations.size() > kOperationsMax) text += fmt::format("; {} more", e_.operations.size() - kOperationsMax);
    Wrapped("Operations: ", text);
  }

  const Explanation& e_;
  const TextStyle style_;
  std::string out_;
};

}  // namespace

std::string RenderText(const Explanation& explanation, const TextStyle& style) {
  return TextReport(explanation, style).Run();
}

}  // namespace tailspan::report
