#include "probe/host_facts.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tailspan::probe {
namespace {

constexpr ino_t kInitialPidNamespaceInode = 0xeffffffc;  // PROC_PID_INIT_INO, include/linux/proc_ns.h
constexpr unsigned kCapSysAdmin = 21, kCapPerfmon = 38, kCapBpf = 39;

int ReadNumber(const char* path) {
  std::ifstream file(path);
  int number = -1;
  return file >> number ? number : -1;
}

uint64_t ReadCapabilities() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("CapEff:")) return std::strtoull(line.c_str() + sizeof("CapEff:") - 1, nullptr, 16);
  }
  return 0;
}

int ReadCgroupVersion() {
  std::ifstream file("/proc/self/mounts");
  int version = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string device, point, type, options;
    fields >> device >> point >> type >> options;
    if (type == "cgroup2" && version == 0) version = 2;
    // A hierarchy of names only (systemd's own) carries no controller.
    if (type == "cgroup" && options.find("name=") == std::string::npos) version = 1;
  }
  return version;
}

bool Has(uint64_t capabilities, unsigned bit) { return capabilities >> bit & 1; }

}  // namespace

bool IsInitialPidNamespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) != 0 || status.st_ino == kInitialPidNamespaceInode;
}

HostFacts ReadHostFacts() {
  HostFacts facts;
  utsname name{};
  if (uname(&name) == 0) {
    facts.kernel_release = name.release;
    facts.machine = name.machine;
  }
  facts.has_btf = access("/sys/kernel/btf/vmlinux", R_OK) == 0;
  facts.is_root = geteuid() == 0;
  facts.effective_capabilities = ReadCapabilities();
  facts.perf_event_paranoid = ReadNumber("/proc/sys/kernel/perf_event_paranoid");
  facts.unprivileged_bpf_disabled = ReadNumber("/proc/sys/kernel/unprivileged_bpf_disabled");
  facts.cgroup_version = ReadCgroupVersion();
  const bool privileged =
      Has(facts.effective_capabilities, kCapSysAdmin) ||
      (Has(facts.effective_capabilities, kCapBpf) && Has(facts.effective_capabilities, kCapPerfmon));
  if (!privileged) {
    facts.obstacle = "neither CAP_SYS_ADMIN nor CAP_BPF with CAP_PERFMON";
    facts.remedy = "run as root, or give the program CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE";
  } else if (!IsInitialPidNamespace()) {
    facts.obstacle = kPidNamespaceObstacle;
    facts.remedy = kPidNamespaceRemedy;
  } else if (!facts.has_btf) {
    facts.obstacle = "the kernel has no BTF (/sys/kernel/btf/vmlinux)";
    facts.remedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF, as the distributions' are";
  }
  facts.can_probe = facts.obstacle.empty();
  return facts;
}

}  // namespace tailspan::probe
