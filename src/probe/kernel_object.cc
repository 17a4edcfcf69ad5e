#include "probe/kernel_object.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace tailspan::probe {
namespace {

constexpr size_t kLogBytesMax = 4096;

thread_local std::string last_log;

// libbpf explains its failures in prose only; the last lines become the reason that the user reads.
int KeepLog(libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN || last_log.size() > kLogBytesMax) return 0;
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  last_log += line;
  return 0;
}

std::string_view FirstLineWith(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return {};
  const size_t begin = text.rfind('\n', at) == std::string_view::npos ? 0 : text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

base::Error LoadError(int os_errno, const std::string& name) {
  if (os_errno == EPERM || os_errno == EACCES)
    return base::OsError(os_errno, fmt::format("{}: may not load kernel programs", name));
  for (const char* word :
       {"failed to find kernel BTF type ID", "failed to find valid kernel BTF", "Error loading vmlinux BTF"}) {
    const std::string_view line = FirstLineWith(last_log, word);
    if (!line.empty())
      return {base::Code::kUnsupported, fmt::format("{}: {}", name, line.substr(line.find(": ") + 2)), os_errno};
  }
  return {base::Code::kUnsupported, fmt::format("{}: the kernel refused it: {}", name, std::strerror(os_errno)),
          os_errno};
}

int OpenCpuClock(unsigned cpu, unsigned frequency_hz) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.config = PERF_COUNT_SW_CPU_CLOCK;
  attributes.freq = 1;
  attributes.sample_freq = frequency_hz;
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, -1, static_cast<int>(cpu), -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

void KernelObject::CloseObject::operator()(bpf_object* object) const { bpf_object__close(object); }
void KernelObject::DestroyLink::operator()(bpf_link* link) const { bpf_link__destroy(link); }

base::Result<KernelObject> KernelObject::Load(const std::string& name, const void* elf, size_t elf_bytes,
                                              const KernelObject* shares_maps_of, const Configure& configure) {
  libbpf_set_print(KeepLog);
  last_log.clear();
  LIBBPF_OPTS(bpf_object_open_opts, options);
  options.object_name = name.c_str();
  bpf_object* opened = bpf_object__open_mem(elf, elf_bytes, &options);
  if (!opened) return LoadError(errno, name);
  KernelObject object(opened, name);
  if (shares_maps_of) {
    bpf_map* map = nullptr;
    bpf_object__for_each_map(map, opened) {
      const int shared = shares_maps_of->MapFd(bpf_map__name(map));
      if (shared < 0 || bpf_map__is_internal(map)) continue;
      if (const int failed = bpf_map__reuse_fd(map, shared); failed)
        return base::OsError(-failed, fmt::format("{}: map {} cannot be shared", name, bpf_map__name(map)));
    }
  }
  if (configure) {
    if (base::Status status = configure(object); !status) return std::move(status).error();
  }
  if (const int failed = bpf_object__load(opened); failed) return LoadError(-failed, name);
  return object;
}

base::Status KernelObject::Attach() {
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object_.get()) {
    bpf_link* link = bpf_program__attach(program);
    if (!link) {
      const int os_errno = errno;
      links_.clear();
      return base::OsError(os_errno, fmt::format("{}: {} cannot be attached", name_, bpf_program__name(program)));
    }
    links_.emplace_back(link);
  }
  return {};
}

base::Status KernelObject::AttachCpuClock(unsigned frequency_hz) {
  bpf_program* program = bpf_object__next_program(object_.get(), nullptr);
  const int cpus = libbpf_num_possible_cpus();
  for (int cpu = 0; cpu < cpus; ++cpu) {
    const int fd = OpenCpuClock(static_cast<unsigned>(cpu), frequency_hz);
    if (fd < 0) {
      if (errno == ENODEV) continue;  // possible, but not there
      const int os_errno = errno;
      links_.clear();
      return base::OsError(os_errno, fmt::format("{}: no CPU clock event", name_));
    }
    bpf_link* link = bpf_program__attach_perf_event(program, fd);
    if (!link) {
      const int os_errno = errno;
      close(fd);
      links_.clear();
      return base::OsError(os_errno, fmt::format("{}: cannot be attached to the CPU clock", name_));
    }
    links_.emplace_back(link);
  }
  return {};
}

base::Result<std::string> KernelObject::ReadTasks(const char* program) const {
  const bpf_program* iterator = bpf_object__find_program_by_name(object_.get(), program);
  std::unique_ptr<bpf_link, DestroyLink> link(bpf_program__attach_iter(iterator, nullptr));
  if (!link) return base::OsError(errno, fmt::format("{}: {} cannot be attached", name_, program));
  const int fd = bpf_iter_create(bpf_link__fd(link.get()));
  if (fd < 0) return base::OsError(errno, fmt::format("{}: {} cannot be started", name_, program));
  std::string out;
  char block[4096];
  ssize_t got = 0;
  while ((got = read(fd, block, sizeof block)) > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) {
    if (got > 0) out.append(block, static_cast<size_t>(got));
  }
  const int os_errno = errno;
  close(fd);
  if (got < 0) return base::OsError(os_errno, fmt::format("{}: {} broke off", name_, program));
  return out;
}

bpf_map* KernelObject::FindMap(const char* name) const { return bpf_object__find_map_by_name(object_.get(), name); }

int KernelObject::MapFd(const char* name) const {
  const bpf_map* map = FindMap(name);
  return map ? bpf_map__fd(map) : -1;
}

void* KernelObject::Constants(size_t* bytes) const {
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object_.get()) {
    const std::string_view name = bpf_map__name(map);
    if (name.ends_with(".rodata")) return const_cast<void*>(bpf_map__initial_value(map, bytes));
  }
  return nullptr;
}

uint64_t KernelObject::RecursionMisses() const {
  uint64_t misses = 0;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object_.get()) {
    bpf_prog_info info{};
    uint32_t bytes = sizeof info;
    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &bytes) == 0) misses += info.recursion_misses;
  }
  return misses;
}

void KernelObject::RunTime(uint64_t* ns, uint64_t* runs) const {
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object_.get()) {
    bpf_prog_info info{};
    uint32_t bytes = sizeof info;
    if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &bytes) != 0) continue;
    *ns += info.run_time_ns;
    *runs += info.run_cnt;
  }
}

}  // namespace tailspan::probe
