// Who is watched by `run --pid` and `run --cgroup`: the processes named and their descendants, or whoever is in the
// cgroup and below it.
//
// Processes are held by pidfd, so that an ended one is seen at once, also before its parent has collected it, and a pid
// that comes back is not taken for the one before. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace tailspan::cli {

class AttachTargets {
 public:
  // Exactly one of the two is given. kNotFound: a named process is not there, the folder is no cgroup, or nobody is in
  // it. kPermission: a named process, or everyone in the cgroup, belongs to another user and this one is not root.
  static base::Result<AttachTargets> Find(const std::vector<int>& pids, const std::string& cgroup);
  AttachTargets(AttachTargets&& other) = default;
  AttachTargets& operator=(AttachTargets&&) = delete;
  ~AttachTargets();

  // Processes that were not there at the last call; at first all, parents before their children. Those of a cgroup
  // become more at any call. Descendants of those named are looked for twice only: in between the caller follows the
  // first ones, and whoever they start from then on is followed from its fork.
  std::vector<int> TakeNew();
  // Waits up to `timeout_ms` for a process to end. False when all have ended.
  bool AnyAlive(int timeout_ms);

 private:
  explicit AttachTargets(std::string cgroup) : cgroup_(std::move(cgroup)) {}
  base::Status Hold(int pid);
  void HoldChildren();
  // kNotFound when the folder is no cgroup, else the last reason why a process in it is not taken.
  base::Status HoldCgroup();

  std::string cgroup_;
  std::map<int, int> pidfds_;  // by pid, of those that live
  std::vector<int> fresh_;
  int looks_for_children_ = 0;
};

}  // namespace tailspan::cli
