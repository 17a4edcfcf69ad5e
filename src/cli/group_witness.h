// Tells whether a signal that tailspan got went to its whole process group, the recorded command included: a terminal's
// Ctrl-C, `kill -INT -PGID`, timeout(1). A signal does not say so itself. A small process of the group, which holds all
// signals back, is asked whether it got the same one.
#pragma once

#include <sys/types.h>

namespace tailspan::cli {

enum class SentTo { kGroup, kThisProcess, kUnknown };

// One at a time. Best made while the program is small and has no other thread.
class GroupWitness {
 public:
  GroupWitness();
  ~GroupWitness() { End(); }
  GroupWitness(const GroupWitness&) = delete;
  GroupWitness& operator=(const GroupWitness&) = delete;

  // From then on nobody knows.
  void End();

 private:
  pid_t pid_ = -1;
};

// For the signal's handler, which holds all signals back meanwhile: of a signal that has just come. Each is asked for
// once. Takes microseconds for a group's and a few milliseconds for another.
SentTo WhereSent(int signal);

}  // namespace tailspan::cli
