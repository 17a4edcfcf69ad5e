// Under sudo: who called it, and opening files as that user. Root would follow links that the user, or the recorded
// command, has put in a file's way, and leave files that the user can neither write nor remove.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace tailspan::cli {

struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string name, home;
};

// The user who called sudo; nullopt when nobody did, or root itself.
std::optional<Caller> SudoCaller();

// While it lives, this thread alone opens, makes and removes files as the user, if one is given; nothing else of its
// privileges changes.
class FilesAs {
 public:
  explicit FilesAs(const std::optional<Caller>& user);
  ~FilesAs();
  FilesAs(const FilesAs&) = delete;
  FilesAs& operator=(const FilesAs&) = delete;

 private:
  bool is_on_ = false;
  uid_t uid_before_ = 0;
  gid_t gid_before_ = 0;
  std::vector<gid_t> groups_before_;
};

}  // namespace tailspan::cli
