// The table of names: which attribute of which dialect means what (see normalise.h).
#pragma once

#include <string_view>

namespace tailspan::collect {

// What a name is, next to what it is called.
enum class Role {
  kPlain,   // stored under its normalised name
  kKind,    // names the AI kind of the span
  kInput,   // text of a prompt, a question, arguments
  kOutput,  // text of an answer, a result, documents
  kPid,     // process.pid and the like
  kThreadId,
};

struct NameRule {
  std::string_view name;  // normalised; empty: as it came
  Role role = Role::kPlain;
  int rank = 0;  // of two names for one concept the lower rank is kept
};

// The rule for a name as a client wrote it. Names that no row knows are plain and keep their name.
NameRule RuleFor(std::string_view key);

}  // namespace tailspan::collect
