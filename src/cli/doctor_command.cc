#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/json_writer.h"
#include "cli/install_layout.h"
#include "cli/subcommand.h"
#include "cli/version.h"
#include "probe/host_facts.h"
#include "probe/kernel_probes.h"

namespace tailspan::cli {
namespace {

model::Capability PythonCapability() {
  std::string folder = PythonFolder();
  model::Capability out{"python_package", !folder.empty(), "", ""};
  if (!out.on) {
    out.reason = "not found beside the program";
    out.remedy = "install tailspan whole, or set TAILSPAN_PYTHON_DIR";
  }
  return out;
}

class DoctorCommand : public Subcommand {
 public:
  const char* name() const override { return "doctor"; }
  const char* description() const override { return "what works on this host, and the remedy for what does not"; }
  void AddOptions(CLI::App* app) override {
    app->add_option("--format", format_, "text or json [text]")->check(CLI::IsMember({"text", "json"}));
  }

  int Run(const std::vector<std::string>&) override {
    probe::HostFacts host = probe::ReadHostFacts();
    std::vector<model::Capability> table = probe::KernelProbes::Probe({});
    table.push_back(PythonCapability());
    table.push_back({"event_loop_asyncio", true, "", ""});
    table.push_back({"event_loop_uvloop", false, "uvloop runs its steps where they cannot be recorded yet",
                     "spans and kernel waits are right there; for event_loop use asyncio's own loop"});
    if (format_ == "json") {
      PrintJson(host, table);
    } else {
      PrintText(host, table);
    }
    return kAnswered;
  }

 private:
  static void PrintText(const probe::HostFacts& host, const std::vector<model::Capability>& table) {
    std::printf("tailspan %s on %s %s, BTF %s, cgroup v%d, %s\n\n", kVersion, host.kernel_release.c_str(),
                host.machine.c_str(), host.has_btf ? "yes" : "no", host.cgroup_version,
                host.is_root ? "root" : "not root");
    size_t width = 8;
    for (const auto& line : table) width = std::max(width, line.signal.size());
    for (const auto& line : table) {
      std::string text = fmt::format("{:{}}  {}", line.signal, width, line.on ? "on" : "off");
      if (!line.on) text += fmt::format("  {}\n{:{}}       remedy: {}", line.reason, "", width, line.remedy);
      std::puts(text.c_str());
    }
    if (!host.can_probe) std::printf("\nkernel probes: %s\nremedy: %s\n", host.obstacle.c_str(), host.remedy.c_str());
  }

  static void PrintJson(const probe::HostFacts& host, const std::vector<model::Capability>& table) {
    base::JsonWriter json;
    json.BeginObject().Key("schema").String("tailspan.doctor/1").Key("kernel").String(host.kernel_release);
    json.Key("machine").String(host.machine).Key("btf").Bool(host.has_btf).Key("root").Bool(host.is_root);
    json.Key("cgroup_version").Int(host.cgroup_version).Key("capabilities").BeginArray();
    for (const auto& line : table) {
      json.BeginObject().Key("signal").String(line.signal).Key("on").Bool(line.on);
      json.Key("reason").String(line.reason).Key("remedy").String(line.remedy).EndObject();
    }
    json.EndArray().EndObject();
    std::puts(json.text().c_str());
  }

  std::string format_ = "text";
};

}  // namespace

std::unique_ptr<Subcommand> MakeDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace tailspan::cli
