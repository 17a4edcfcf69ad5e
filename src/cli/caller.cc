#include "cli/caller.h"

#include <grp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace tailspan::cli {
namespace {

// The C library's setgroups changes all threads.
void SetGroupsOfThread(const std::vector<gid_t>& groups) { syscall(SYS_setgroups, groups.size(), groups.data()); }

}  // namespace

std::optional<Caller> SudoCaller() {
  const char* sudo_uid = getenv("SUDO_UID");
  if (geteuid() != 0 || !sudo_uid) return std::nullopt;
  char* end = nullptr;
  const unsigned long id = strtoul(sudo_uid, &end, 10);
  if (*end || id == 0) return std::nullopt;
  const passwd* entry = getpwuid(static_cast<uid_t>(id));
  if (!entry) return std::nullopt;
  Caller caller;
  caller.uid = entry->pw_uid;
  caller.gid = entry->pw_gid;
  caller.name = entry->pw_name;
  caller.home = entry->pw_dir;
  int count = 64;
  caller.groups.resize(static_cast<size_t>(count));
  if (getgrouplist(caller.name.c_str(), caller.gid, caller.groups.data(), &count) < 0) {
    caller.groups.resize(static_cast<size_t>(count));
    getgrouplist(caller.name.c_str(), caller.gid, caller.groups.data(), &count);
  }
  caller.groups.resize(static_cast<size_t>(count));
  return caller;
}

FilesAs::FilesAs(const std::optional<Caller>& user) {
  if (!user) return;
  is_on_ = true;
  groups_before_.resize(static_cast<size_t>(getgroups(0, nullptr)));
  groups_before_.resize(static_cast<size_t>(getgroups(static_cast<int>(groups_before_.size()), groups_before_.data())));
  SetGroupsOfThread(user->groups);
  gid_before_ = static_cast<gid_t>(setfsgid(user->gid));
  uid_before_ = static_cast<uid_t>(setfsuid(user->uid));
}

FilesAs::~FilesAs() {
  if (!is_on_) return;
  setfsuid(uid_before_);
  setfsgid(gid_before_);
  SetGroupsOfThread(groups_before_);
}

}  // namespace tailspan::cli
