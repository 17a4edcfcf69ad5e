#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/log.h"
#include "cli/answer.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"

namespace tailspan::cli {
namespace {

constexpr int64_t kUnixSecondsMax = 9'000'000'000;  // as int64 ns; the year 2255

// Unix seconds, or an ISO 8601 time in UTC ("2026-11-30T18:00:00Z").
base::Result<int64_t> ParseTime(const std::string& text) {
  char* end = nullptr;
  double seconds = std::strtod(text.c_str(), &end);
  const bool fits = std::abs(seconds) < static_cast<double>(kUnixSecondsMax);  // "nan" and "inf" do not
  if (fits && *end == 0 && end != text.c_str()) return static_cast<int64_t>(seconds * 1e9);
  tm utc{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
  if (!rest || (*rest != 0 && std::string(rest) != "Z")) {
    return base::Error{base::Code::kInvalidArgument, text + ": give Unix seconds or 2026-11-30T18:00:00Z"};
  }
  const int64_t whole_s = timegm(&utc);
  if (std::abs(whole_s) >= kUnixSecondsMax) {
    return base::Error{base::Code::kInvalidArgument, text + ": not a time that Unix ns can tell"};
  }
  return whole_s * 1'000'000'000;
}

// "nan" reads as a number and lies outside no range.
std::string IsNumber(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is not a number" : std::string();
}

constexpr double kSloMaxMs = 1e9;

class ExplainCommand : public Subcommand {
 public:
  const char* name() const override { return "explain"; }
  const char* description() const override { return "the answer for an operation, a trace or a window of a recording"; }

  void AddOptions(CLI::App* app) override {
    app->add_option("FILE", options_.file, "a recording made by tailspan run")->required();
    app->add_option("--operation", options_.explain.operation,
                    "operation [of those with enough requests, the one with the largest summed excess]")
        ->type_name("NAME");
    app->add_option(
           "--trace", options_.trace,
           "one request's ledger instead, by the id of its trace, or of a LangSmith trace or run; ID/ROOT where "
           "a trace has several")
        ->type_name("ID");
    app->add_option("--from", from_, "requests that began at or after this time, Unix s or ISO 8601 UTC")
        ->type_name("T");
    app->add_option("--to", to_, "requests that began before this time")->type_name("T");
    app->add_option("--quantile", options_.explain.quantile,
                    "the tail [the highest of .99 .95 .90 with 5 requests beyond]")
        ->type_name("Q")
        ->check(CLI::Range(0.5, 0.9999))
        ->check(IsNumber);
    auto* slo = app->add_option("--slo", options_.explain.slo_ms, "excess is what is beyond this target, ms")
                    ->type_name("MS")
                    ->check(CLI::PositiveNumber)
                    ->check(CLI::Range(0.0, kSloMaxMs))
                    ->check(IsNumber);
    app->add_option("--baseline", options_.baseline_file, "excess is what is beyond this earlier recording")
        ->type_name("FILE")
        ->excludes(slo);
    app->add_option("--format", options_.format, "text or json [text]")->check(CLI::IsMember({"text", "json"}));
  }

  int Run(const std::vector<std::string>&) override {
    for (auto [text, to] : {std::pair{&from_, &options_.window.from_unix_ns}, {&to_, &options_.window.to_unix_ns}}) {
      if (text->empty()) continue;
      auto time = ParseTime(*text);
      if (!time.ok()) {
        base::LogError("{}", time.error().message);
        return kUsage;
      }
      *to = *time;
    }
    if (options_.window.from_unix_ns >= options_.window.to_unix_ns) {
      base::LogError("--from must be before --to: no request begins between them");
      return kUsage;
    }
    options_.style = StyleOfStdout();
    auto answer = Explain(options_);
    if (!answer.ok()) {
      base::LogError("{}", answer.error().message);
      return answer.error().code == base::Code::kInvalidArgument ? kUsage : kFailed;
    }
    std::fputs(answer->text.c_str(), stdout);
    if (std::fflush(stdout) != 0) {
      base::LogError("the answer could not be written");
      return kFailed;
    }
    return answer->insufficient ? kNotEnoughData : kAnswered;
  }

 private:
  AnswerOptions options_;
  std::string from_, to_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeExplainCommand() { return std::make_unique<ExplainCommand>(); }

}  // namespace tailspan::cli
