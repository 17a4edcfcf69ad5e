// From what the kernel saw of a wait to its class, its cause and its waker: pure functions over the raw facts.
//
// The cause here is what the kernel alone can say. Waits that a runtime's own scheduling explains (event_loop, queue,
// a retransmission inside a receive) are refined later, where those records are.
#pragma once

#include "model/cause.h"
#include "model/kernel.h"
#include "probe/bpf/wire.h"

namespace tailspan::probe {

model::WaitClass ClassOf(const WireWaitFacts& facts);

// Of the blocked part of the wait.
model::Cause CauseOf(const WireWait& wait);

model::WakerKind WakerKindOf(const WireWaker& waker);

model::WaitTarget TargetOf(const WireWait& wait);

}  // namespace tailspan::probe
