// One record of the loop ring (src/context/loop_ring.h) as a row of the model. Pure; records are untrusted.
#pragma once

#include <cstdint>

#include "context/loop_ring.h"
#include "model/batch.h"

namespace tailspan::probe {

// Whether every field is in its range and the times are in order and not in the future.
bool IsPlausibleRecord(const TailspanRingRecord& record, int64_t now_mono_ns);

// REQUIRES: IsPlausibleRecord.
void AppendRecord(int32_t pid, const TailspanRingRecord& record, model::RecordBatch* batch);

}  // namespace tailspan::probe
