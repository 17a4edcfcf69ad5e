#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "cli/subcommand.h"
#include "cli/version.h"

namespace tailspan::cli {
namespace {

int Main(int argc, char** argv) {
  // What stands behind "--" is somebody else's command line and is not ours to parse.
  std::vector<std::string> own(argv + 1, argv + argc), rest;
  bool has_rest = false;
  if (auto dashes = std::find(own.begin(), own.end(), "--"); dashes != own.end()) {
    rest.assign(dashes + 1, own.end());
    own.erase(dashes, own.end());
    has_rest = true;
  }

  CLI::App app{
      "tailspan tells why an AI request was late: every nanosecond gets one span, one cause, one party to blame."};
  app.name("tailspan");
  app.set_version_flag("--version", std::string("tailspan ") + kVersion);
  app.require_subcommand(1);
  bool verbose = false;
  app.add_flag("-v,--verbose", verbose, "log more to standard error");

  std::vector<std::unique_ptr<Subcommand>> commands;
  commands.push_back(MakeRunCommand());
  commands.push_back(MakeExplainCommand());
  commands.push_back(MakeDoctorCommand());
  std::vector<CLI::App*> apps;
  for (const auto& command : commands) {
    apps.push_back(app.add_subcommand(command->name(), command->description()));
    command->AddOptions(apps.back());
  }
  std::reverse(own.begin(), own.end());  // as CLI11 takes a vector
  try {
    app.parse(own);
  } catch (const CLI::ParseError& error) {
    bool asked = error.get_exit_code() == 0;  // --help, --version
    app.exit(error);
    return asked ? kAnswered : kUsage;
  }
  if (verbose) base::SetLogLevel(base::LogLevel::kDebug);
  for (size_t i = 0; i < commands.size(); ++i) {
    if (!apps[i]->parsed()) continue;
    if (has_rest && std::string(commands[i]->name()) != "run") {
      std::fprintf(stderr, "tailspan: error: only run takes a command behind --\n");
      return kUsage;
    }
    return commands[i]->Run(rest);
  }
  return kUsage;
}

}  // namespace
}  // namespace tailspan::cli

int main(int argc, char** argv) { return tailspan::cli::Main(argc, argv); }
