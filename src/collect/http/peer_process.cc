#include "collect/http/peer_process.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

namespace tailspan::collect::http {
namespace {

constexpr size_t kRecentMax = 16;
constexpr char kSocketTables[][16] = {"/proc/net/tcp", "/proc/net/tcp6"};

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

// The inode of the socket with these ports, 0 when there is none. Columns by proc(5): sl local remote st ... inode.
// Takes the longer the more sockets the host has: a millisecond for a thousand.
uint64_t InodeInTable(uint16_t local_port, uint16_t remote_port) {
  for (const char* path : kSocketTables) {
    std::unique_ptr<FILE, int (*)(FILE*)> table(std::fopen(path, "re"), std::fclose);
    char line[512];
    while (table && std::fgets(line, sizeof line, table.get())) {
      unsigned local = 0;
      unsigned remote = 0;
      unsigned long inode = 0;
      int fields = std::sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%x %*x %*s %*s %*s %*u %*u %lu", &local,
                               &remote, &inode);
      if (fields == 3 && local == local_port && remote == remote_port && inode != 0) return inode;
    }
  }
  return 0;
}

bool Holds(int32_t pid, const std::string& socket) {
  std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  Folder fds(opendir(folder.c_str()), closedir);
  if (!fds) return false;
  while (const dirent* entry = readdir(fds.get())) {
    char target[64];
    ssize_t n = readlinkat(dirfd(fds.get()), entry->d_name, target, sizeof target);
    if (n > 0 && socket.compare(0, std::string::npos, target, static_cast<size_t>(n)) == 0) return true;
  }
  return false;
}

}  // namespace

int32_t PeerProcesses::Find(const model::SocketAddress& peer, const model::SocketAddress& own) {
  std::optional<uint64_t> told = use_diag_ ? diag_.InodeOf(peer, own) : std::nullopt;
  uint64_t inode = told ? *told : InodeInTable(peer.port, own.port);
  if (inode == 0) return 0;
  std::string socket = "socket:[" + std::to_string(inode) + "]";
  for (int32_t pid : recent_) {
    if (Holds(pid, socket)) return pid;
  }
  Folder processes(opendir("/proc"), closedir);
  while (const dirent* entry = processes ? readdir(processes.get()) : nullptr) {
    int32_t pid = std::atoi(entry->d_name);
    if (pid <= 0 || std::find(recent_.begin(), recent_.end(), pid) != recent_.end() || !Holds(pid, socket)) continue;
    recent_.insert(recent_.begin(), pid);
    if (recent_.size() > kRecentMax) recent_.pop_back();
    return pid;
  }
  return 0;
}

}  // namespace tailspan::collect::http
