#include "probe/python_runtime.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>

namespace tailspan::probe {
namespace {

constexpr const char* kRuntimeSymbol = "_PyRuntime";
constexpr uint64_t kFileBytesMax = 1ull << 30;
constexpr uint64_t kPageMask = ~0xfffull;

// A file mapped read-only, with bounded access.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat status {};
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
        static_cast<uint64_t>(status.st_size) <= kFileBytesMax) {
      void* mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
      if (mapped != MAP_FAILED) {
        data_ = static_cast<const char*>(mapped);
        bytes_ = static_cast<size_t>(status.st_size);
      }
    }
    close(fd);
  }
  ~MappedFile() {
    if (data_) munmap(const_cast<char*>(data_), bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  template <typename T>
  bool Read(uint64_t offset, T* value) const {
    if (!data_ || offset > bytes_ || bytes_ - offset < sizeof(T)) return false;
    std::memcpy(value, data_ + offset, sizeof(T));
    return true;
  }
  bool TextIs(uint64_t offset, std::string_view text) const {
    if (offset > bytes_ || bytes_ - offset <= text.size()) return false;
    return std::string_view(data_ + offset, text.size()) == text && data_[offset + text.size()] == '\0';
  }

 private:
  const char* data_ = nullptr;
  size_t bytes_ = 0;
};

bool ReadLoadAddress(const MappedFile& file, const Elf64_Ehdr& header, uint64_t* address) {
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

struct Holder {
  const char* version;
  uint64_t last_holder;  // offset of gil.last_holder in _PyRuntime
  uint32_t native_tid;   // offset of native_thread_id in PyThreadState
};
// Only layouts that were checked against a running interpreter stand here; others report no holder.
constexpr Holder kHolders[] = {{"3.11", 0x170, 0xA0}};

PythonRuntime RuntimeOf(const DynamicSymbol& symbol, uint64_t bias, std::string version) {
  PythonRuntime runtime;
  runtime.low = symbol.value + bias;
  runtime.high = runtime.low + symbol.size;
  for (const Holder& holder : kHolders) {
    if (version != holder.version) continue;
    runtime.holder_address = runtime.low + holder.last_holder;
    runtime.holder_tid_offset = holder.native_tid;
  }
  runtime.version = std::move(version);
  return runtime;
}

}  // namespace

std::optional<DynamicSymbol> FindDynamicSymbol(const std::string& path, const std::string& name) {
  const MappedFile file(path);
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
    if (!file.Read(header.e_shoff + uint64_t{symbols.sh_link} * sizeof strings, &strings)) return std::nullopt;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      if (!file.Read(symbols.sh_offset + at, &symbol)) return std::nullopt;
      if (symbol.st_shndx == SHN_UNDEF || !file.TextIs(strings.sh_offset + symbol.st_name, name)) continue;
      found.value = symbol.st_value;
      found.size = symbol.st_size;
      return found;
    }
  }
  return std::nullopt;
}

std::optional<PythonRuntime> FindPythonRuntime(int32_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::string line, last_path;
  while (std::getline(maps, line)) {
    uint64_t start = 0, offset = 0;
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%lx-%*x %*s %lx %*s %*s %n", &start, &offset, &path_at) < 2 || path_at <= 0)
      continue;
    const std::string path = line.substr(static_cast<size_t>(path_at));
    if (path.empty() || path[0] != '/' || path == last_path || offset != 0 || !NamesPython(path)) continue;
    last_path = path;
    // By way of the process's own root, so that containers work too.
    const auto symbol = FindDynamicSymbol(fmt::format("/proc/{}/root{}", pid, path), kRuntimeSymbol);
    if (!symbol || symbol->size == 0) continue;
    return RuntimeOf(*symbol, symbol->is_relocatable ? start - symbol->first_load_address : 0, VersionIn(path));
  }
  return std::nullopt;
}

}  // namespace tailspan::probe
