// Joins spans to threads that published no span of their own: programs without our hooks, in any language.
//
//  - by thread.id: a span whose `thread.id` attribute is the kernel's id of a thread of its process is that thread's
//    current span while it is open; the innermost of nested ones wins. Where spans are open at once on one thread that
//    are not nested (an event loop), none is current.
//  - by the only open request: while exactly one request is open in a process none of whose threads is joined by
//    anything else, the thread that has at least half of the process's on-CPU time meanwhile works for it, for the
//    innermost span that is open alone.
//
// A span's process is its process.pid (or the sender's), else the only process with kernel records. Ids are the host's:
// those of another pid namespace match nothing.
#pragma once

#include <vector>

#include "analyze/timeline.h"
#include "analyze/trace_assembly.h"

namespace tailspan::analyze {

// Sets the marks of such threads, and how they were joined.
void JoinSpansToThreads(const std::vector<Trace>& traces, Timeline* timeline);

}  // namespace tailspan::analyze
