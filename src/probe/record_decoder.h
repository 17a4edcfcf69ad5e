// Turns the kernel's records into the model's. Pure; a record that is too short or of an unknown type is refused.
#pragma once

#include <cstddef>

#include "model/batch.h"

namespace tailspan::probe {

// Appends what the record holds to the batch. False when it is not a record.
bool DecodeRecord(const void* data, size_t bytes, model::RecordBatch* batch);

}  // namespace tailspan::probe
