#include "probe/recording.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

namespace tailspan::probe_test {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(25);

[[noreturn]] void RunChild(const std::vector<std::string>& command, int go, int output) {
  char byte;
  while (read(go, &byte, 1) < 0 && errno == EINTR) {
  }
  dup2(output, STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  perror(arguments[0]);
  _exit(127);
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;) text.append(buffer.data(), static_cast<size_t>(n));
  return text;
}

}  // namespace

base::Result<Recording> RecordCommand(const std::vector<std::string>& command,
                                      const probe::KernelProbesOptions& options) {
  auto opened = probe::KernelProbes::Open(options);
  if (!opened) return std::move(opened).error();
  probe::KernelProbes& probes = **opened;
  int go[2], output[2];
  if (pipe2(go, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) return base::OsError(errno, "pipe");
  Recording recording;
  recording.pid = fork();
  if (recording.pid < 0) return base::OsError(errno, "fork");
  if (recording.pid == 0) RunChild(command, go[0], output[1]);
  close(go[0]);
  close(output[1]);
  const base::Status followed = probes.FollowProcess(recording.pid);
  if (write(go[1], "g", 1) != 1) return base::OsError(errno, "write");
  close(go[1]);
  while (waitpid(recording.pid, &recording.status, WNOHANG) == 0) {
    probes.Drain(&recording.batch);
    std::this_thread::sleep_for(kPollEvery);
  }
  if (!followed) return followed.error();
  probes.Drain(&recording.batch);
  recording.output = ReadAll(output[0]);
  close(output[0]);
  recording.losses = probes.Losses();
  recording.capabilities = probes.capabilities();
  return recording;
}

}  // namespace tailspan::probe_test
