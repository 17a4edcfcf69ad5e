#include <cstddef>
#include <cstdint>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tailspan::fuzz::RunOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
