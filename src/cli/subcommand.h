// A subcommand as an object: its options are data, its Run is the work. main.cc holds the table of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tailspan::cli {

// Exit statuses that people script against (docs: contract in README).
enum ExitStatus : int {
  kAnswered = 0,
  kFailed = 1,
  kUsage = 2,
  kNotEnoughData = 3,
  kGateFailed = 4,
  kRunFailed = 125,      // `run`: tailspan itself failed
  kNotExecutable = 126,  // `run`: the command cannot be executed
  kNotFoundCommand = 127,
};

class Subcommand {
 public:
  virtual ~Subcommand() = default;
  virtual const char* name() const = 0;
  virtual const char* description() const = 0;
  virtual void AddOptions(CLI::App* app) = 0;
  // `rest` is what stood behind "--". Returns the exit status.
  virtual int Run(const std::vector<std::string>& rest) = 0;
};

std::unique_ptr<Subcommand> MakeRunCommand();
std::unique_ptr<Subcommand> MakeExplainCommand();
std::unique_ptr<Subcommand> MakeDoctorCommand();

}  // namespace tailspan::cli
