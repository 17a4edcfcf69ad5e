// Known bottleneck patterns by cause and blamed party: what each is called, its usual fix, and the signal that would
// settle it. Data only; the first row that matches is taken.
#pragma once

#include <string>

#include "model/cause.h"
#include "model/ledger.h"

namespace tailspan::analyze {

struct Pattern {
  model::Cause cause;
  model::BlameKind blame;  // kNone matches every kind
  const char* id;
  const char* wait;  // what happens, as "waits for …" or the like; {} stands for the blamed party
  const char* fix;
  const char* missing;  // the signal that would decide, when it is not in this recording; empty: none
};

const Pattern& PatternFor(model::Cause cause, model::BlameKind blame);

// `text` of a pattern with every {} replaced by the blamed party; where no one is known, by what kind of party it is.
std::string WithParty(const char* text, model::Cause cause, const model::Blame& blame);

}  // namespace tailspan::analyze
