// What the host offers to kernel probes, for doctor: facts beside the table of signals, which is found by trial.
#pragma once

#include <cstdint>
#include <string>

namespace tailspan::probe {

struct HostFacts {
  std::string kernel_release;
  std::string machine;
  bool has_btf = false;
  bool is_root = false;
  uint64_t effective_capabilities = 0;  // bit mask, as in /proc/self/status
  int perf_event_paranoid = -1;         // -1 unknown
  int unprivileged_bpf_disabled = -1;
  int cgroup_version = 0;  // 1, 2; 0 none mounted. 1 also when both are mounted and the controllers are on 1
  bool can_probe = false;  // privileged and with BTF: whether it works is still found by trial
  std::string obstacle;    // why not, empty if it can
  std::string remedy;
};

HostFacts ReadHostFacts();

// Records name threads by the numbers of the initial pid namespace; a tailspan in another one cannot tell whose they
// are.
bool IsInitialPidNamespace();
inline constexpr const char* kPidNamespaceObstacle =
    "tailspan runs in a pid namespace of its own, and the kernel's records have the host's process numbers";
inline constexpr const char* kPidNamespaceRemedy =
    "run it in the host's pid namespace: docker run --pid=host, hostPID: true in Kubernetes";

}  // namespace tailspan::probe
