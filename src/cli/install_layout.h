// Where the program's companions are: beside it in a build folder, or below its prefix when installed.
#pragma once

#include <optional>
#include <string>

#include "cli/caller.h"

namespace tailspan::cli {

// The folder that holds the Python package and its sitecustomize; "" when it is not there. TAILSPAN_PYTHON_DIR
// overrides.
std::string PythonFolder();

// A folder of one run, writable by the command whatever user it runs as; removed at the end. Under sudo it is the
// caller's, who can remove what a killed tailspan leaves.
class StatusFolder {
 public:
  explicit StatusFolder(std::optional<Caller> owner);
  ~StatusFolder();
  StatusFolder(const StatusFolder&) = delete;
  StatusFolder& operator=(const StatusFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::optional<Caller> owner_;
  std::string path_;
};

}  // namespace tailspan::cli
