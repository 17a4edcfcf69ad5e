// One fuzz target a file: RunOne takes any bytes. libFuzzer drives it (driver_libfuzzer.cc), and so does the replay of
// kept inputs that runs with the other tests (driver_replay.cc).
#pragma once

#include <string_view>

namespace tailspan::fuzz {

void RunOne(std::string_view input);

}  // namespace tailspan::fuzz
