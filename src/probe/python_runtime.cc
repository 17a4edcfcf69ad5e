#include "probe/python_runtime.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>

#include "probe/bpf/wire.h"
#include "probe/process_context.h"

namespace tailspan::probe {
namespace {

constexpr const char* kRuntimeSymbol = "_PyRuntime";
constexpr uint64_t kFileBytesMax = 1ull << 32;    // nothing is looked for beyond
constexpr uint64_t kSectionBytesMax = 16u << 20;  // of dynamic symbols and of their names; CPython has 0.1
constexpr uint64_t kPageMask = ~0xfffull;

// A file of a process's own choosing, read with bounds. Not mapped: cutting a mapped file short would kill us.
class UntrustedFile {
 public:
  explicit UntrustedFile(const std::string& path) : fd_(OpenRegularFile(path)) {}
  ~UntrustedFile() {
    if (fd_ >= 0) close(fd_);
  }
  UntrustedFile(const UntrustedFile&) = delete;
  UntrustedFile& operator=(const UntrustedFile&) = delete;

  bool ReadAt(uint64_t offset, void* to, size_t bytes) const {
    if (fd_ < 0 || offset > kFileBytesMax) return false;
    return pread(fd_, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }
  template <typename T>
  bool Read(uint64_t offset, T* value) const {
    return ReadAt(offset, value, sizeof(T));
  }
  bool ReadSection(const Elf64_Shdr& section, std::string* content) const {
    if (section.sh_size > kSectionBytesMax) return false;
    content->resize(section.sh_size);
    return ReadAt(section.sh_offset, content->data(), content->size());
  }

 private:
  int fd_;
};

bool NameAt(const std::string& strings, uint64_t offset, std::string_view name) {
  if (offset >= strings.size() || strings.size() - offset <= name.size()) return false;
  return std::string_view(strings).substr(offset, name.size()) == name && strings[offset + name.size()] == '\0';
}

bool ReadLoadAddress(const UntrustedFile& file, const Elf64_Ehdr& header, uint64_t* address) {
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!file.Read(header.e_phoff + uint64_t{i} * sizeof segment, &segment)) return false;
    if (segment.p_type != PT_LOAD) continue;
    *address = (segment.p_vaddr - segment.p_offset) & kPageMask;
    return true;
  }
  return false;
}

bool NamesPython(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  return file.find("python") != std::string_view::npos;
}

// "3.11" from "python3.11", "libpython3.11.so.1.0".
std::string VersionIn(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  size_t at = file.find("python");
  if (at == std::string_view::npos) return {};
  at += std::strlen("python");
  size_t end = at;
  int dots = 0;
  while (end < file.size() &&
         (std::isdigit(static_cast<unsigned char>(file[end])) || (file[end] == '.' && dots++ == 0)))
    ++end;
  std::string version(file.substr(at, end - at));
  if (!version.empty() && version.back() == '.') version.pop_back();
  return version;
}

// Where the main interpreter keeps its GIL. Before 3.12 inside _PyRuntime; then in the interpreter's state, whose place
// moves with each patch release: 3.12 is read by way of two pointers near the start, and from 3.13 on _PyRuntime begins
// with a table of offsets for readers from outside (_Py_DebugOffsets).
constexpr uint64_t kGil310 = 0x160, kPthread310 = 0xB0;
constexpr uint64_t kGil311 = 0x168, kTid311 = 0xA0;
constexpr uint64_t kMainInterpreter312 = 0x30, kGilOfInterpreter312 = 0x180, kTid312 = 0x90;
constexpr char kOffsetsCookie[] = "xdebugpy";
constexpr size_t kCookieBytes = sizeof kOffsetsCookie - 1;
constexpr uint64_t kHolderInGil = 8;  // behind `unsigned long interval`, and before `int locked`, in every version
constexpr uint64_t kInterpretersMax = 1024;

// The table's numbers, counted in 8-byte words from the start of _PyRuntime.
struct OffsetsLayout {
  const char* version;
  unsigned next, ceval_gil, own_gil, locked, holder, native_tid;
};
constexpr unsigned kWordFreeThreaded = 2, kWordInterpretersHead = 5;
constexpr unsigned kWordsMax = 40;
constexpr OffsetsLayout kOffsetsLayouts[] = {{"3.13", 8, 14, 15, 17, 18, 25}, {"3.14", 8, 15, 16, 18, 19, 28}};

template <typename T>
bool ReadMemory(int32_t pid, uint64_t address, T* value, size_t count = 1) {
  iovec here{value, sizeof(T) * count};
  iovec there{reinterpret_cast<void*>(address), sizeof(T) * count};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == static_cast<ssize_t>(sizeof(T) * count);
}

struct Gil {
  uint64_t address = 0, tid_offset = 0;
  bool by_pthread = false;
};

// Nothing while the interpreter is not made yet.
std::optional<Gil> GilOf312(int32_t pid, uint64_t low) {
  uint64_t interpreter = 0, gil = 0;
  if (!ReadMemory(pid, low + kMainInterpreter312, &interpreter) || interpreter == 0 ||
      !ReadMemory(pid, interpreter + kGilOfInterpreter312, &gil) || gil == 0)
    return std::nullopt;
  return Gil{gil, kTid312};
}

std::optional<Gil> GilByOffsets(int32_t pid, uint64_t low, const OffsetsLayout& layout) {
  uint64_t words[kWordsMax];
  if (!ReadMemory(pid, low, words, kWordsMax) || std::memcmp(words, kOffsetsCookie, kCookieBytes) != 0 ||
      words[kWordFreeThreaded] != 0 || words[layout.locked] != words[layout.holder] + 8 ||
      words[layout.holder] != words[layout.own_gil] + kHolderInGil)
    return std::nullopt;
  uint64_t interpreter = 0, next = 0;  // the newest is first, the main one last
  if (!ReadMemory(pid, low + words[kWordInterpretersHead], &interpreter) || interpreter == 0) return std::nullopt;
  for (uint64_t i = 0; i < kInterpretersMax; ++i) {
    if (!ReadMemory(pid, interpreter + words[layout.next], &next)) return std::nullopt;
    if (next == 0) break;
    interpreter = next;
  }
  uint64_t gil = 0;
  if (!ReadMemory(pid, interpreter + words[layout.ceval_gil], &gil) || gil == 0) return std::nullopt;
  return Gil{gil, words[layout.native_tid]};
}

// The holder is believed if it is a thread of this process.
bool NamesAThread(int32_t pid, const Gil& gil) {
  uint64_t holder = 0, tid = 0;
  if (!ReadMemory(pid, gil.address + kHolderInGil, &holder) || holder == 0 ||
      !ReadMemory(pid, holder + gil.tid_offset, &tid))
    return false;
  if (gil.by_pthread) {
    uint32_t number = 0;
    if (!ReadMemory(pid, tid + kWireTidInPthread, &number)) return false;
    tid = number;
  }
  return tid != 0 && access(fmt::format("/proc/{}/task/{}", pid, tid).c_str(), F_OK) == 0;
}

void FindHolder(int32_t pid, PythonRuntime* runtime) {
  std::optional<Gil> gil;
  if (runtime->version == "3.10") {
    gil = Gil{runtime->low + kGil310, kPthread310, true};
  } else if (runtime->version == "3.11") {
    gil = Gil{runtime->low + kGil311, kTid311};
  } else if (runtime->version == "3.12") {
    gil = GilOf312(pid, runtime->low);
  } else {
    const OffsetsLayout* known = nullptr;
    for (const OffsetsLayout& layout : kOffsetsLayouts) {
      if (runtime->version == layout.version) known = &layout;
    }
    if (!known) return;
    gil = GilByOffsets(pid, runtime->low, *known);
  }
  const bool is_inside = gil && gil->address >= runtime->low && gil->address < runtime->high;
  if (!is_inside || !NamesAThread(pid, *gil)) {
    runtime->is_starting = true;
    return;
  }
  runtime->holder_address = gil->address + kHolderInGil;
  runtime->holder_tid_offset = static_cast<uint32_t>(gil->tid_offset);
  runtime->holder_by_pthread = gil->by_pthread;
}

PythonRuntime RuntimeOf(int32_t pid, const DynamicSymbol& symbol, uint64_t bias, std::string version) {
  PythonRuntime runtime;
  runtime.low = symbol.value + bias;
  runtime.high = runtime.low + symbol.size;
  runtime.version = std::move(version);
  FindHolder(pid, &runtime);
  return runtime;
}

}  // namespace

std::optional<DynamicSymbol> FindDynamicSymbol(const std::string& path, const std::string& name) {
  const UntrustedFile file(path);
  Elf64_Ehdr header;
  if (!file.Read(0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    return std::nullopt;
  DynamicSymbol found;
  found.is_relocatable = header.e_type == ET_DYN;
  if (!ReadLoadAddress(file, header, &found.first_load_address)) return std::nullopt;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr symbols, strings;
    if (!file.Read(header.e_shoff + uint64_t{i} * sizeof symbols, &symbols)) return std::nullopt;
    if (symbols.sh_type != SHT_DYNSYM) continue;
    std::string table, names;
    if (!file.Read(header.e_shoff + uint64_t{symbols.sh_link} * sizeof strings, &strings) ||
        !file.ReadSection(symbols, &table) || !file.ReadSection(strings, &names))
      return std::nullopt;
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= table.size(); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, table.data() + at, sizeof symbol);
      if (symbol.st_shndx == SHN_UNDEF || !NameAt(names, symbol.st_name, name)) continue;
      found.value = symbol.st_value;
      found.size = symbol.st_size;
      return found;
    }
    return std::nullopt;  // a file has one such table
  }
  return std::nullopt;
}

std::optional<PythonRuntime> FindPythonRuntime(int32_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::string line, last_path;
  while (std::getline(maps, line)) {
    uint64_t start = 0, end = 0, offset = 0;
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %*s %n", &start, &end, &offset, &path_at) < 3 || path_at <= 0)
      continue;
    const std::string path = line.substr(static_cast<size_t>(path_at));
    if (path.empty() || path[0] != '/' || path == last_path || offset != 0 || !NamesPython(path)) continue;
    last_path = path;
    // The mapped file itself, also when another stands in its place by now (an upgrade). Without the right to that, by
    // way of the process's own root, so that containers work too.
    auto symbol = FindDynamicSymbol(fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, start, end), kRuntimeSymbol);
    if (!symbol) symbol = FindDynamicSymbol(fmt::format("/proc/{}/root{}", pid, path), kRuntimeSymbol);
    if (!symbol || symbol->size == 0) continue;
    return RuntimeOf(pid, *symbol, symbol->is_relocatable ? start - symbol->first_load_address : 0, VersionIn(path));
  }
  return std::nullopt;
}

}  // namespace tailspan::probe
