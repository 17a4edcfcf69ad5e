// One BPF object, loaded and attached by trial: a host that cannot do it gives an Error that says why, and nothing
// stays behind. Objects other than the first use the first one's maps where the names agree. Move-only; detaches when
// destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

struct bpf_link;
struct bpf_map;
struct bpf_object;

namespace tailspan::probe {

class KernelObject {
 public:
  // `configure` runs between open and load: read-only data and map sizes are set there.
  using Configure = std::function<base::Status(KernelObject&)>;
  static base::Result<KernelObject> Load(const std::string& name, const void* elf, size_t elf_bytes,
                                         const KernelObject* shares_maps_of, const Configure& configure);

  KernelObject(KernelObject&&) = default;
  KernelObject& operator=(KernelObject&&) = default;

  // Attaches every program whose hook is named by its section.
  base::Status Attach();
  // Attaches the only program to a software clock of each CPU.
  base::Status AttachCpuClock(unsigned frequency_hz);

  // What the iterator program writes, once through all the host's tasks. (The kernel's own choice of one process never
  // comes to its end on 6.1.)
  base::Result<std::string> ReadTasks(const char* program) const;

  bpf_map* FindMap(const char* name) const;
  int MapFd(const char* name) const;  // -1 when there is no such map
  // The object's read-only constants before it is loaded; null when it has none.
  void* Constants(size_t* bytes) const;
  // Missed runs by recursion, summed over the programs.
  uint64_t RecursionMisses() const;
  // Time and number of runs since the kernel's run statistics were switched on, for the cost figure.
  void RunTime(uint64_t* ns, uint64_t* runs) const;

 private:
  struct CloseObject {
    void operator()(bpf_object* object) const;
  };
  struct DestroyLink {
    void operator()(bpf_link* link) const;
  };
  explicit KernelObject(bpf_object* object, std::string name) : object_(object), name_(std::move(name)) {}

  std::unique_ptr<bpf_object, CloseObject> object_;
  std::vector<std::unique_ptr<bpf_link, DestroyLink>> links_;  // after object_: detached first
  std::string name_;
};

}  // namespace tailspan::probe
