#include "cli/attach.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace tailspan::cli {
namespace {

using base::Code;
using base::Error;
using base::Result;
using base::Status;

// The cgroup's processes and those of the cgroups below it: under v2 only leaves hold any.
std::vector<int> ProcessesOf(const std::string& cgroup) {
  std::vector<std::string> folders{cgroup};
  std::error_code error;
  std::filesystem::recursive_directory_iterator below(cgroup, error), end;
  for (; !error && below != end; below.increment(error)) {
    std::error_code ignored;
    if (below->is_directory(ignored)) folders.push_back(below->path());
  }
  std::vector<int> pids;
  for (const std::string& folder : folders) {
    std::ifstream in(folder + "/cgroup.procs");
    int pid = 0;
    while (in >> pid) {
      if (pid > 0 && pid != getpid()) pids.push_back(pid);  // 0: of a pid namespace that we cannot see into
    }
  }
  return pids;
}

constexpr int kLooksForChildren = 2;

std::vector<int> ChildrenOf(int pid) {
  std::vector<int> children;
  std::error_code error;
  std::filesystem::directory_iterator threads(fmt::format("/proc/{}/task", pid), error), end;
  for (; !error && threads != end; threads.increment(error)) {
    std::ifstream in(threads->path() / "children");
    int child = 0;
    while (in >> child) {
      if (child != getpid()) children.push_back(child);  // attached to the shell that started us
    }
  }
  return children;
}

}  // namespace

AttachTargets::~AttachTargets() {
  for (const auto& [pid, fd] : pidfds_) close(fd);
}

Result<AttachTargets> AttachTargets::Find(const std::vector<int>& pids, const std::string& cgroup) {
  AttachTargets targets(cgroup);
  for (int pid : pids) {
    if (Status held = targets.Hold(pid); !held.ok()) return held.error();
  }
  if (cgroup.empty()) return targets;
  Status held = targets.HoldCgroup();
  if (!targets.pidfds_.empty()) return targets;
  if (!held.ok()) return held.error();
  return Error{Code::kNotFound, cgroup + ": no process is in this cgroup"};
}

Status AttachTargets::Hold(int pid) {
  if (pidfds_.contains(pid)) return {};
  if (kill(pid, 0) != 0 && errno == EPERM) {
    return Error{Code::kPermission, fmt::format("process {} belongs to another user: run tailspan as root", pid),
                 EPERM};
  }
  int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  bool is_thread = fd < 0 && (errno == EINVAL || errno == ENOENT);  // kernels differ in the errno
  if (is_thread) return Error{Code::kNotFound, fmt::format("{} is a thread; give its process", pid)};
  if (fd < 0 && errno != ESRCH) return base::OsError(errno, fmt::format("process {} cannot be watched", pid));
  if (fd < 0) return Error{Code::kNotFound, fmt::format("there is no process {}", pid), ESRCH};
  pidfds_[pid] = fd;
  fresh_.push_back(pid);
  return {};
}

void AttachTargets::HoldChildren() {
  std::vector<int> parents;
  for (const auto& [pid, fd] : pidfds_) parents.push_back(pid);
  for (size_t i = 0; i < parents.size(); ++i) {
    for (int child : ChildrenOf(parents[i])) {
      if (pidfds_.contains(child)) continue;
      if (Hold(child).ok()) parents.push_back(child);  // else it has ended meanwhile, or is another user's
    }
  }
}

Status AttachTargets::HoldCgroup() {
  if (!std::ifstream(cgroup_ + "/cgroup.procs")) {
    return Error{Code::kNotFound,
                 cgroup_ + ": no cgroup.procs there; give a cgroup's folder, such as /sys/fs/cgroup/NAME"};
  }
  Status last;
  for (int pid : ProcessesOf(cgroup_)) {
    Status held = Hold(pid);
    if (!held.ok() && held.error().code != Code::kNotFound) last = held;  // ended meanwhile: no reason to give
  }
  return last;
}

std::vector<int> AttachTargets::TakeNew() {
  if (!cgroup_.empty()) {
    // That the cgroup is gone, or that one in it may not be watched, is no failure of those that are.
    [[maybe_unused]] Status ignored = HoldCgroup();
  } else if (looks_for_children_ < kLooksForChildren) {
    ++looks_for_children_;
    HoldChildren();
  }
  return std::exchange(fresh_, {});
}

bool AttachTargets::AnyAlive(int timeout_ms) {
  std::vector<pollfd> polled;
  for (const auto& [pid, fd] : pidfds_) polled.push_back({fd, POLLIN, 0});
  poll(polled.data(), polled.size(), timeout_ms);  // interrupted by a signal: as after the time
  for (const pollfd& one : polled) {
    if (!one.revents) continue;
    close(one.fd);
    std::erase_if(pidfds_, [&](const auto& held) { return held.second == one.fd; });
  }
  return !pidfds_.empty();
}

}  // namespace tailspan::cli
