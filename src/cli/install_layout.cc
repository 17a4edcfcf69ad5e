#include "cli/install_layout.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

namespace tailspan::cli {

std::string PythonFolder() {
  namespace fs = std::filesystem;
  std::error_code error;
  if (const char* given = std::getenv("TAILSPAN_PYTHON_DIR")) return given;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const char* below : {"../python", "../lib/tailspan/python"}) {
    fs::path folder = program.parent_path() / below;
    if (fs::exists(folder / "sitecustomize" / "sitecustomize.py", error))
      return fs::weakly_canonical(folder, error).string();
  }
  return {};
}

StatusFolder::StatusFolder(std::optional<Caller> owner) : owner_(std::move(owner)) {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) folder = "/tmp";  // TMPDIR names no folder
  std::string made = (folder / "tailspan-status-XXXXXX").string();
  if (mkdtemp(made.data())) {
    path_ = made;
    chmod(path_.c_str(), 01777);
    if (owner_ && lchown(path_.c_str(), owner_->uid, owner_->gid) != 0) owner_.reset();
  }
}

StatusFolder::~StatusFolder() {
  FilesAs files(owner_);
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
}

}  // namespace tailspan::cli
