// Lets this process's requests to the disk below a path pass one by one, by a cgroup of its own: on a fast disk waits
// would be too short to be held against a clock. Needs root and blkio (v1) or io (v2); else nothing is slowed.
//
// A limit lets through in one go what it allows for a slice of time (a tenth of a second): so one that makes each
// request wait is that low.
#pragma once

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

class SlowDisk {
 public:
  explicit SlowDisk(const std::string& path) {
    const std::string v1 = "/sys/fs/cgroup/blkio", v2 = "/sys/fs/cgroup";
    const bool is_v1 = std::filesystem::exists(v1 + "/blkio.throttle.read_iops_device");
    const std::string disk = DiskOf(path);
    if (disk.empty() || (!is_v1 && !Write(v2 + "/cgroup.subtree_control", "+io"))) return;
    root_ = is_v1 ? v1 : v2;
    group_ = root_ + "/tailspan-test-" + std::to_string(getpid());
    std::error_code error;
    std::filesystem::create_directory(group_, error);
    slowed_ = (is_v1 ? Write(group_ + "/blkio.throttle.read_iops_device", disk + " 10") &&
                           Write(group_ + "/blkio.throttle.write_iops_device", disk + " 10")
                     : Write(group_ + "/io.max", disk + " riops=10 wiops=10")) &&
              Write(group_ + "/cgroup.procs", std::to_string(getpid()));
  }
  ~SlowDisk() {
    if (group_.empty()) return;
    Write(root_ + "/cgroup.procs", std::to_string(getpid()));
    rmdir(group_.c_str());
  }
  SlowDisk(const SlowDisk&) = delete;
  SlowDisk& operator=(const SlowDisk&) = delete;

  bool slowed() const { return slowed_; }

 private:
  static bool Write(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    return file.good();
  }

  // "major:minor", since limits do not go on partitions; empty where the path is on no disk.
  static std::string DiskOf(const std::string& path) {
    struct stat found {};
    if (stat(path.c_str(), &found) != 0) return {};
    std::filesystem::path node =
        "/sys/dev/block/" + std::to_string(major(found.st_dev)) + ":" + std::to_string(minor(found.st_dev));
    if (!std::filesystem::exists(node)) return {};
    if (std::filesystem::exists(node / "partition")) node = std::filesystem::canonical(node).parent_path();
    std::string device;
    std::ifstream(node / "dev") >> device;
    return device;
  }

  std::string root_, group_;
  bool slowed_ = false;
};
