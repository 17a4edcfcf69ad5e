#include "probe/process_context.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace tailspan::probe {
namespace {

constexpr int kTries = 3;           // while the process rewrites its context
constexpr size_t kMappingsMax = 8;  // more of that name are not looked at
constexpr size_t kKeysMax = 256;    // a key index is one byte
constexpr size_t kTextBytesMax = 256;

struct Header {
  char signature[8];
  uint32_t version, payload_bytes;
  uint64_t published_mono_ns;
  uint64_t payload;
};
static_assert(sizeof(Header) == 32);

base::Error Invalid(std::string what) { return {base::Code::kDataLoss, "process context: " + std::move(what)}; }

// A cursor over a protobuf message; `bad` once it ran over the end.
struct Cursor {
  std::span<const uint8_t> rest;
  bool bad = false;

  uint64_t Varint() {
    uint64_t value = 0;
    for (size_t i = 0; i < 10 && i < rest.size(); ++i) {
      value |= static_cast<uint64_t>(rest[i] & 127) << (7 * i);
      if (rest[i] < 128) {
        rest = rest.subspan(i + 1);
        return value;
      }
    }
    bad = true;
    return 0;
  }

  std::span<const uint8_t> Bytes(uint64_t size) {
    if (bad || size > rest.size()) {
      bad = true;
      return {};
    }
    auto bytes = rest.first(size);
    rest = rest.subspan(size);
    return bytes;
  }

  // The next field; its content in `bytes` (length delimited) or `number`. False at the end or when bad.
  bool Next(uint32_t* field, uint64_t* number, std::span<const uint8_t>* bytes) {
    if (bad || rest.empty()) return false;
    uint64_t tag = Varint();
    *field = static_cast<uint32_t>(tag >> 3);
    *number = 0;
    *bytes = {};
    switch (tag & 7) {
      case 0:
        *number = Varint();
        break;
      case 1:
        Bytes(8);
        break;
      case 2:
        *bytes = Bytes(Varint());
        break;
      case 5:
        Bytes(4);
        break;
      default:
        bad = true;
    }
    return !bad;
  }
};

std::string Text(std::span<const uint8_t> bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kTextBytesMax));
  for (char& c : text) {
    if (c < 0x20 || c == 0x7F) c = '?';
  }
  return text;
}

struct Value {
  std::string text;
  int64_t number = 0;
  std::span<const uint8_t> array;
};

bool ParseValue(std::span<const uint8_t> bytes, Value* value) {
  Cursor cursor{bytes};
  uint32_t field;
  uint64_t number;
  std::span<const uint8_t> content;
  while (cursor.Next(&field, &number, &content)) {
    if (field == 1) value->text = Text(content);
    if (field == 3) value->number = static_cast<int64_t>(number);
    if (field == 5) value->array = content;
  }
  return !cursor.bad;
}

bool ParseKeys(std::span<const uint8_t> array, std::vector<std::string>* keys) {
  Cursor cursor{array};
  uint32_t field;
  uint64_t number;
  std::span<const uint8_t> content;
  while (cursor.Next(&field, &number, &content)) {
    Value value;
    if (field != 1) continue;
    if (keys->size() == kKeysMax || !ParseValue(content, &value)) return false;
    keys->push_back(std::move(value.text));
  }
  return !cursor.bad;
}

struct Runtime {
  std::string name, version;
};

bool ParsePair(std::span<const uint8_t> bytes, ProcessContext* context, Runtime* runtime) {
  Cursor cursor{bytes};
  uint32_t field;
  uint64_t number;
  std::span<const uint8_t> content;
  std::string key;
  Value value;
  while (cursor.Next(&field, &number, &content)) {
    if (field == 1) key = Text(content);
    if (field == 2 && !ParseValue(content, &value)) return false;
  }
  if (cursor.bad) return false;
  if (key == "tailspan.tls_offset") {
    context->has_tls_offset = true;
    context->tls_offset = value.number;
  } else if (key == "tailspan.ring_fd") {
    if (value.number < 0 || value.number > INT32_MAX) return false;
    context->ring_fd = static_cast<int32_t>(value.number);
  } else if (key == "tailspan.ring_version") {
    context->ring_version = static_cast<uint32_t>(value.number);
  } else if (key == "threadlocal.attribute_key_map") {
    context->keys.clear();
    return ParseKeys(value.array, &context->keys);
  } else if (key == "process.runtime.name") {
    runtime->name = value.text;
  } else if (key == "process.runtime.version") {
    runtime->version = value.text;
  }
  return true;
}

base::Status ReadMemory(int32_t pid, uint64_t address, void* to, size_t size) {
  iovec local{to, size}, remote{reinterpret_cast<void*>(address), size};
  ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  if (got == static_cast<ssize_t>(size)) return {};
  if (got >= 0) return Invalid("its memory ends early");
  return base::OsError(errno, "cannot read the memory of process " + std::to_string(pid));
}

// One look at one mapping; a change in between is kUnavailable.
base::Result<ProcessContext> ReadAt(int32_t pid, const MemoryRange& range) {
  Header header, again;
  if (range.end - range.start < sizeof header) return Invalid("the mapping is too small");
  if (auto status = ReadMemory(pid, range.start, &header, sizeof header); !status.ok()) return status.error();
  if (header.published_mono_ns == 0) return base::Error{base::Code::kUnavailable, "process context: being written"};
  if (std::memcmp(header.signature, "OTEL_CTX", 8) != 0) return Invalid("wrong signature");
  if (header.version != 2) return Invalid("version " + std::to_string(header.version) + " is not known");
  if (header.payload_bytes > kContextPayloadBytesMax) return Invalid("payload over the limit");
  std::vector<uint8_t> payload(header.payload_bytes);
  if (!payload.empty()) {
    auto status = ReadMemory(pid, header.payload, payload.data(), payload.size());
    if (!status.ok()) return status.error();
  }
  if (auto status = ReadMemory(pid, range.start, &again, sizeof again); !status.ok()) return status.error();
  if (std::memcmp(&header, &again, sizeof header) != 0) {
    return base::Error{base::Code::kUnavailable, "process context: changed while it was read"};
  }
  auto context = ParseProcessContext(payload);
  if (context.ok()) context->published_mono_ns = static_cast<int64_t>(header.published_mono_ns);
  return context;
}

}  // namespace

base::Result<ProcessContext> ParseProcessContext(std::span<const uint8_t> payload) {
  ProcessContext context;
  Runtime runtime;
  Cursor cursor{payload};
  uint32_t field;
  uint64_t number;
  std::span<const uint8_t> content;
  while (cursor.Next(&field, &number, &content)) {
    bool good = true;
    if (field == 1) {  // Resource: its attributes are field 1
      Cursor resource{content};
      while (good && resource.Next(&field, &number, &content)) {
        if (field == 1) good = ParsePair(content, &context, &runtime);
      }
      good = good && !resource.bad;
    } else if (field == 2) {
      good = ParsePair(content, &context, &runtime);
    }
    if (!good) return Invalid("the payload cannot be decoded");
  }
  if (cursor.bad) return Invalid("the payload cannot be decoded");
  context.runtime = runtime.version.empty() ? runtime.name : runtime.name + " " + runtime.version;
  return context;
}

std::vector<MemoryRange> FindMappings(std::string_view maps, std::string_view name) {
  const std::string anonymous = "[anon:" + std::string(name) + "]";
  const std::string file = "/memfd:" + std::string(name) + " (deleted)";
  std::vector<MemoryRange> found;
  while (!maps.empty() && found.size() < kMappingsMax) {
    std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(maps.size(), line.size() + 1));
    // "start-end perms offset device inode   name"
    MemoryRange range;
    const char* end = line.data() + line.size();
    auto start_end = std::from_chars(line.data(), end, range.start, 16);
    if (start_end.ec != std::errc() || start_end.ptr == end || *start_end.ptr != '-') continue;
    auto end_end = std::from_chars(start_end.ptr + 1, end, range.end, 16);
    if (end_end.ec != std::errc() || end - end_end.ptr < 3 || end_end.ptr[1] != 'r' || range.end <= range.start)
      continue;
    size_t at = line.find_first_of("/[");
    if (at == std::string_view::npos) continue;
    std::string_view shown = line.substr(at);
    if (shown == anonymous || shown == file) found.push_back(range);
  }
  return found;
}

int OpenRegularFile(const std::string& path) {
  const int handle = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (handle < 0) return -1;
  struct stat status;
  int fd = -1, os_errno = EINVAL;
  if (fstat(handle, &status) == 0 && S_ISREG(status.st_mode)) {
    const std::string own = "/proc/self/fd/" + std::to_string(handle);
    fd = open(own.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    os_errno = errno;
  }
  close(handle);
  if (fd < 0) errno = os_errno;
  return fd;
}

base::Result<std::string> ReadMaps(int32_t pid) {
  std::string path = "/proc/" + std::to_string(pid) + "/maps";
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::OsError(errno, "cannot open " + path);
  std::string maps;
  std::vector<char> buffer(65536);
  ssize_t got = 0;
  while (maps.size() < kMapsBytesMax && (got = read(fd, buffer.data(), buffer.size())) > 0) {
    maps.append(buffer.data(), static_cast<size_t>(got));
  }
  int os_errno = errno;
  close(fd);
  if (got < 0) return base::OsError(os_errno, "cannot read " + path);
  return maps;
}

base::Result<ProcessContext> ReadProcessContext(int32_t pid) {
  auto maps = ReadMaps(pid);
  if (!maps.ok()) return std::move(maps).error();
  base::Error last{base::Code::kNotFound, "process " + std::to_string(pid) + " publishes no context"};
  for (const MemoryRange& range : FindMappings(*maps, "OTEL_CTX")) {
    for (int i = 0; i < kTries; ++i) {
      auto context = ReadAt(pid, range);
      if (context.ok()) return context;
      last = context.error();
      if (last.code != base::Code::kUnavailable) break;
      usleep(100);
    }
  }
  if (last.code == base::Code::kUnavailable) last.code = base::Code::kDataLoss;
  return last;
}

}  // namespace tailspan::probe
