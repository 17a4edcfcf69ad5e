// Finds CPython's own state in a running process: the exported symbol _PyRuntime, which holds the GIL's locks.
//
// Works for interpreters linked statically (Debian's python3) and for a shared libpython, from the files behind the
// process's mappings; nothing of the process is stopped or changed. The files are untrusted and read with bounds, and
// what is found in the process's memory is believed only if the holder that it names is a thread of the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tailspan::probe {

struct PythonRuntime {
  uint64_t low = 0, high = 0;   // addresses of _PyRuntime in the process, [low, high)
  std::string version;          // "3.11", from the file's name; empty if the name does not say
  uint64_t holder_address = 0;  // of the main interpreter's gil.last_holder; 0 while or where it is not known
  uint32_t holder_tid_offset = 0;
  bool holder_by_pthread = false;  // a pthread_t stands there, not the kernel's number: 3.10
  bool is_starting = false;  // the interpreter has not made its first thread's state yet: look again for the holder
};

std::optional<PythonRuntime> FindPythonRuntime(int32_t pid);

// Value, size and whether it moves with the mapping of a symbol in an ELF file's dynamic symbol table.
struct DynamicSymbol {
  uint64_t value = 0, size = 0;
  bool is_relocatable = false;
  uint64_t first_load_address = 0;  // of the file's first loaded byte, page aligned
};
std::optional<DynamicSymbol> FindDynamicSymbol(const std::string& path, const std::string& name);

}  // namespace tailspan::probe
