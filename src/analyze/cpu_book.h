// Our on-CPU time against the scheduler's own book of the same threads and times: whether what is measured can be
// trusted. They are independent: ours is the time between two switches, the other is sum_exec_runtime.
#pragma once

#include <vector>

#include "model/explanation.h"
#include "model/kernel.h"

namespace tailspan::analyze {

// Beyond this relative difference the measurement is doubtful and the answer says so.
inline constexpr double kCpuBookDifferenceMax = 0.03;

// Over all intervals whose book could be read. The scheduler starts a turn at the waking that preempts, we at the
// switch, so for each thread the book may be ahead by at most the time that it stood in the run queue; up to that its
// lead is counted as `preemption_ns`.
model::CpuBook CompareCpuBooks(const std::vector<model::ThreadInterval>& intervals);

}  // namespace tailspan::analyze
