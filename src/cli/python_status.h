// What the Python package says of itself: each process leaves a JSON file in the status folder of its run
// (python/tailspan/status.py, schema tailspan.python-status/1).
#pragma once

#include <string>
#include <vector>

#include "model/kernel.h"

namespace tailspan::cli {

// Capability lines made of all files in the folder: thread context, loop ring, and each hook that is off with its
// reason. Files that cannot be read are skipped: they are written by the watched program. Empty when no process left
// any.
std::vector<model::Capability> ReadPythonStatus(const std::string& folder);

}  // namespace tailspan::cli
