// Starts the recorded command: stopped until it is followed, as the user who called sudo, with its signals passed on.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tailspan::cli {

struct ChildOptions {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment;  // set on top of the caller's
  std::vector<std::string> unset;                                // and what is left out of that
  bool as_root = false;                                          // stay root under sudo
};

// A command that waits at a pipe before its exec. If tailspan dies before Release, the command runs all the same.
class Child {
 public:
  // kNotFound / kPermission when the command cannot be executed: found out before anything is started.
  static base::Result<Child> Prepare(const ChildOptions& options);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }
  // Lets it exec. kNotFound, kPermission: the exec failed (the child is reaped then).
  base::Status Release();
  // Waits for its end, passing signals on meanwhile. Returns the exit status as a shell has it (128 + signal). From
  // then on signals are noted: an impatient second Ctrl-C must not cost the end of the recording.
  int Wait();

 private:
  Child() = default;

  pid_t pid_ = -1;
  int go_fd_ = -1;      // closing it, or dying, lets the child go on
  int failed_fd_ = -1;  // errno of a failed exec; closed by a successful one
};

// Signals end tailspan again, as before Child::Prepare. True when one that asks it to end has been noted.
bool EndPassingOn();

// Takes as many descriptors as a receiver with all its connections wants, where the hard limit allows. Commands are
// given the limit that tailspan was called with.
void RaiseDescriptorLimit();

}  // namespace tailspan::cli
