#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/log.h"
#include "cli/answer.h"
#include "cli/attach.h"
#include "cli/caller.h"
#include "cli/child.h"
#include "cli/group_witness.h"
#include "cli/install_layout.h"
#include "cli/recorder.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"

namespace tailspan::cli {
namespace {

volatile sig_atomic_t g_stop = 0;

std::string DefaultFile(const std::string& name) {
  time_t now = time(nullptr);
  tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return "tailspan-" + name + "-" + text + ".duckdb";
}

void SetDefault(std::vector<std::pair<std::string, std::string>>* environment, const char* name, std::string value) {
  if (!getenv(name)) environment->emplace_back(name, std::move(value));
}

bool IsSet(const char* name) {
  const char* value = getenv(name);
  return value && *value;
}

// Exporters ask a proxy for this machine's own addresses too, unless they are told not to.
void BypassProxies(std::vector<std::pair<std::string, std::string>>* environment) {
  if (!IsSet("http_proxy") && !IsSet("HTTP_PROXY") && !IsSet("all_proxy") && !IsSet("ALL_PROXY")) return;
  for (auto [name, other] : {std::pair{"no_proxy", "NO_PROXY"}, {"NO_PROXY", "no_proxy"}}) {
    const char* from = IsSet(name) ? name : IsSet(other) ? other : nullptr;
    std::string hosts = from ? getenv(from) : "";
    if (hosts.find("127.0.0.1") == std::string::npos && hosts != "*")
      hosts += hosts.empty() ? "127.0.0.1" : ",127.0.0.1";
    environment->emplace_back(name, std::move(hosts));
  }
}

void OnStopSignals(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    bool nohup = signal == SIGHUP && before.sa_handler == SIG_IGN;
    if (!nohup) sigaction(signal, &action, nullptr);
  }
}

class RunCommand : public Subcommand {
 public:
  const char* name() const override { return "run"; }
  const char* description() const override {
    return "record a command and all its children, then say what made its P99";
  }

  void AddOptions(CLI::App* app) override {
    app->footer("usage: tailspan run [options] -- CMD ARG...");
    app->add_option("--out", file_, "the recording [tailspan-<name>-<UTC time>.duckdb]")->type_name("FILE");
    app->add_option("--name", name_, "name of the recording [the command's]")->type_name("NAME");
    app->add_option("--quantile", quantile_, "the tail to explain [the highest of .99 .95 .90 with 5 requests beyond]")
        ->type_name("Q")
        ->check(CLI::Range(0.5, 0.9999));
    app->add_option("--operation", operation_,
                    "operation to explain [of those with enough requests, the one with the largest summed excess]");
    app->add_option("--exclude", exclude_, "do not follow programs of this name (may be repeated)")->type_name("COMM");
    app->add_flag("--as-root", as_root_, "under sudo, keep root for CMD");
    app->add_flag("--no-explain", no_explain_, "record only");
    app->add_flag("--no-probes", no_probes_, "record spans only");
    app->add_flag("--keep-content", keep_content_,
                  "store prompts and answers as they came, not only their length and hash");
    app->add_option("--threshold", threshold_us_, "waits from here on are records of their own, us [50]")
        ->check(CLI::Range(1, 10'000));
    app->add_option("--ring-buffer", ring_mib_, "kernel ring buffer, MiB, a power of two [16]")
        ->check(CLI::Range(1, 1024));
    app->add_option("--drop-per-mille", drop_per_mille_, "test: lose this share of kernel records on purpose [0]")
        ->check(CLI::Range(0, 1000));
    app->add_option("--drop-ring-per-mille", drop_ring_per_mille_,
                    "test: lose this share of event-loop records on purpose [0]")
        ->check(CLI::Range(0, 1000));
    app->add_option("--port", port_, "port for OTLP and LangSmith on 127.0.0.1 [chosen by the kernel]");
    auto* pid =
        app->add_option("--pid", pids_, "instead of CMD: attach to this process and its children (may be repeated)")
            ->check(CLI::PositiveNumber);
    app->add_option("--cgroup", cgroup_, "instead of CMD: attach to the processes of this cgroup and those below it")
        ->type_name("PATH")
        ->excludes(pid);
    app->add_option("--duration", duration_s_, "attached: how long, s [until interrupted or the processes have ended]")
        ->type_name("S")
        ->check(CLI::PositiveNumber);
  }

  int Run(const std::vector<std::string>& rest) override {
    bool attach = !pids_.empty() || !cgroup_.empty();
    if (attach == !rest.empty()) {
      std::fprintf(stderr, "tailspan: error: run takes either -- CMD ARG..., or --pid or --cgroup\n");
      return kUsage;
    }
    if (!attach && duration_s_ > 0) {
      std::fprintf(stderr, "tailspan: error: --duration goes with --pid or --cgroup; a command ends by itself\n");
      return kUsage;
    }
    if (name_.empty()) name_ = attach ? "attached" : std::filesystem::path(rest.front()).filename().string();
    if (file_.empty()) file_ = DefaultFile(name_);
    return attach ? Attach() : RunChild(rest);
  }

 private:
  RecorderOptions MakeOptions(const std::vector<std::string>& command) const {
    RecorderOptions options;
    options.file = file_;
    options.name = name_;
    options.command = command;
    options.port = port_;
    options.keep_content = keep_content_;
    options.use_probes = !no_probes_;
    options.probes.threshold_ns = int64_t{threshold_us_} * 1000;
    options.probes.ring_buffer_bytes = static_cast<uint32_t>(ring_mib_) << 20;
    options.probes.drop_per_mille = static_cast<uint32_t>(drop_per_mille_);
    options.ring_drop_per_mille = static_cast<uint32_t>(drop_ring_per_mille_);
    options.probes.excluded_comms = exclude_;
    options.files_as_caller = !as_root_;
    return options;
  }

  // Everything that an app needs to be recorded is in its environment; nothing in its code.
  std::vector<std::pair<std::string, std::string>> Environment(uint16_t port, const std::string& status_folder) const {
    std::vector<std::pair<std::string, std::string>> out;
    std::string endpoint = "http://127.0.0.1:" + std::to_string(port);
    constexpr const char* kEndpoints[] = {"OTEL_EXPORTER_OTLP_ENDPOINT", "LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT",
                                          "LANGSMITH_RUNS_ENDPOINTS", "LANGCHAIN_RUNS_ENDPOINTS"};
    if (std::any_of(std::begin(kEndpoints), std::end(kEndpoints), [](const char* name) { return getenv(name); })) {
      base::LogWarning("while recording, spans go to tailspan instead of the endpoint in the environment");
    }
    out.emplace_back("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    out.emplace_back("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint + "/v1/traces");
    out.emplace_back("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    out.emplace_back("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf");
    SetDefault(&out, "OTEL_METRICS_EXPORTER", "none");
    SetDefault(&out, "OTEL_LOGS_EXPORTER", "none");
    SetDefault(&out, "OTEL_TRACES_EXPORTER", "otlp");
    for (const char* prefix : {"LANGSMITH", "LANGCHAIN"}) {
      out.emplace_back(std::string(prefix) + "_ENDPOINT", endpoint);
      std::string key = std::string(prefix) + "_API_KEY";
      SetDefault(&out, key.c_str(), "tailspan");
    }
    if (!getenv("LANGCHAIN_TRACING_V2") && !getenv("LANGSMITH_TRACING_V2") && !getenv("LANGSMITH_TRACING")) {
      out.emplace_back("LANGSMITH_TRACING", "true");
      out.emplace_back("TAILSPAN_LANGSMITH_DEFAULT", "1");  // nobody asked for it: hooks/one_tracer.py
    }
    BypassProxies(&out);
    std::string python = PythonFolder();
    if (!python.empty()) {
      const char* path = getenv("PYTHONPATH");
      out.emplace_back("PYTHONPATH", python + "/sitecustomize" + (path && *path ? std::string(":") + path : ""));
      out.emplace_back("TAILSPAN_STATUS_DIR", status_folder);
    } else {
      base::LogWarning("the Python package was not found beside the program: spans are joined without thread context");
    }
    return out;
  }

  int RunChild(const std::vector<std::string>& command) {
    GroupWitness witness;
    RaiseDescriptorLimit();
    StatusFolder status(as_root_ ? std::nullopt : SudoCaller());
    RecorderOptions options = MakeOptions(command);
    options.status_folder = status.path();
    auto recorder = Recorder::Start(options);
    if (!recorder.ok()) {
      base::LogError("{}", recorder.error().message);
      return kRunFailed;
    }
    GiveFileToCaller(**recorder);
    ChildOptions child_options;
    child_options.command = command;
    child_options.environment = Environment((*recorder)->port(), status.path());
    // Beside an endpoint these make LangSmith's clients refuse to start.
    child_options.unset = {"LANGSMITH_RUNS_ENDPOINTS", "LANGCHAIN_RUNS_ENDPOINTS"};
    child_options.as_root = as_root_;
    auto child = Child::Prepare(child_options);
    if (!child.ok()) return Unstarted(child.error(), recorder->get());
    if (base::Status followed = (*recorder)->Follow(child->pid()); !followed.ok()) {
      base::LogWarning("the command is not followed: {}", followed.error().message);
    }
    if (base::Status released = child->Release(); !released.ok()) return Unstarted(released.error(), recorder->get());
    base::LogInfo("recording {} to {}; spans at 127.0.0.1:{}, kernel probes {}", name_, file_, (*recorder)->port(),
                  (*recorder)->probes_on() ? "on" : "off");
    int exit_status = child->Wait();
    witness.End();
    return FinishAndExplain(recorder->get(), exit_status);
  }

  int Unstarted(const base::Error& error, Recorder* recorder) {
    Discard(recorder);
    base::LogError("{}", error.message);
    if (error.code == base::Code::kNotFound) return kNotFoundCommand;
    return error.code == base::Code::kPermission ? kNotExecutable : kRunFailed;
  }

  // Nothing was recorded: no file is left.
  void Discard(Recorder* recorder) const {
    base::Status ignored = recorder->Finish();
    if (!ignored.ok()) base::LogError("{}", ignored.error().message);
    FilesAs files(recorder->file_user());
    std::error_code none;
    std::filesystem::remove(file_, none);
    std::filesystem::remove(file_ + ".wal", none);
  }

  int Attach() {
    auto targets = AttachTargets::Find(pids_, cgroup_);
    if (!targets.ok()) {
      base::LogError("{}", targets.error().message);
      return kUsage;
    }
    RaiseDescriptorLimit();
    auto recorder = Recorder::Start(MakeOptions({}));
    if (!recorder.ok()) {
      base::LogError("{}", recorder.error().message);
      return kRunFailed;
    }
    GiveFileToCaller(**recorder);
    OnStopSignals([](int) { g_stop = 1; });
    size_t followed = FollowNew(&*targets, recorder->get());
    if (!followed) {
      Discard(recorder->get());
      base::LogError("none of the processes could be followed");
      return kRunFailed;
    }
    base::LogInfo(
        "attached to {} processes, recording to {}; spans at http://127.0.0.1:{}, kernel probes {}; interrupt to end",
        followed, file_, (*recorder)->port(), (*recorder)->probes_on() ? "on" : "off");
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::seconds kLookEvery{1};
    auto end = Clock::now() + std::chrono::duration<double>(duration_s_ > 0 ? duration_s_ : 1e9);
    auto look = Clock::now() + kLookEvery;
    while (!g_stop && Clock::now() < end && targets->AnyAlive(100)) {
      if (Clock::now() < look) continue;
      look = Clock::now() + kLookEvery;
      FollowNew(&*targets, recorder->get());
    }
    return FinishAndExplain(recorder->get(), 0);
  }

  bool IsExcluded(int pid) const {
    std::ifstream in(fmt::format("/proc/{}/comm", pid));
    std::string comm;
    std::getline(in, comm);
    return std::find(exclude_.begin(), exclude_.end(), comm) != exclude_.end();
  }

  size_t FollowNew(AttachTargets* targets, Recorder* recorder) const {
    size_t followed = 0;
    for (int pid : targets->TakeNew()) {
      if (IsExcluded(pid)) continue;
      base::Status status = recorder->Follow(pid);
      if (status.ok()) {
        ++followed;
      } else if (status.error().code != base::Code::kNotFound) {
        base::LogWarning("process {} is not followed: {}", pid, status.error().message);
      }
    }
    return followed;
  }

  // Under sudo the recording belongs to the user who asked for it, from its beginning: tailspan may be killed. Here is
  // left what root had to make, in a folder where that user makes no files.
  void GiveFileToCaller(const Recorder& recorder) const {
    if (as_root_ || recorder.file_user()) return;
    const std::optional<Caller> caller = SudoCaller();
    if (!caller) return;
    // Never through a link that the command may have put there.
    if (lchown(file_.c_str(), caller->uid, caller->gid) != 0) base::LogWarning("{} stays root's", file_);
    (void)!lchown((file_ + ".wal").c_str(), caller->uid, caller->gid);
  }

  int FinishAndExplain(Recorder* recorder, int exit_status) {
    base::Status written = recorder->Finish();
    bool interrupted = EndPassingOn();
    if (!pids_.empty() || !cgroup_.empty()) OnStopSignals(SIG_DFL);
    if (!written.ok()) {
      base::LogError("{}: the recording is not whole: {}", file_, written.error().message);
      return kRunFailed;
    }
    base::LogInfo("recorded {} spans", recorder->spans_received());
    if (no_explain_) return exit_status;
    if (interrupted) {
      base::LogInfo("interrupted; the recording is whole: tailspan explain {}", file_);
      return exit_status;
    }
    AnswerOptions answer;
    answer.file = file_;
    answer.explain.quantile = quantile_;
    answer.explain.operation = operation_;
    answer.style = StyleOfStdout();
    FilesAs files(recorder->file_user());
    base::Result<Answer> text = Explain(answer);
    if (!text.ok()) {
      base::LogError("{}", text.error().message);
      return exit_status;
    }
    std::fputs(text->text.c_str(), stdout);
    std::fflush(stdout);
    return exit_status;
  }

  std::string file_, name_, operation_, cgroup_;
  double quantile_ = 0, duration_s_ = 0;
  std::vector<std::string> exclude_;
  std::vector<int> pids_;
  bool as_root_ = false, no_explain_ = false, no_probes_ = false, keep_content_ = false;
  int threshold_us_ = 50, ring_mib_ = 16, drop_per_mille_ = 0, drop_ring_per_mille_ = 0;
  uint16_t port_ = 0;
};

}  // namespace

std::unique_ptr<Subcommand> MakeRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace tailspan::cli
