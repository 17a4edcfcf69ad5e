#include "cli/child.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tailspan::cli {
namespace {

using base::Code;
using base::Error;
using base::Status;

std::atomic<pid_t> g_child{0};

// A terminal's Ctrl-C reaches the whole foreground group, the command included; only what was sent to tailspan alone is
// passed on.
void PassOn(int signal, siginfo_t* info, void*) {
  pid_t child = g_child.load();
  bool from_terminal = info->si_code == SI_KERNEL && (signal == SIGINT || signal == SIGQUIT || signal == SIGTSTP);
  if (child > 0 && !from_terminal) kill(child, signal);
}

constexpr int kPassedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

void CatchSignals() {
  struct sigaction action {};
  action.sa_sigaction = PassOn;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : kPassedOn) sigaction(signal, &action, nullptr);
}

// As execvp looks it up.
base::Result<std::string> FindProgram(const std::string& name) {
  auto usable = [](const std::string& path, int* why) {
    struct stat st {};
    if (stat(path.c_str(), &st) != 0) return false;
    if (S_ISDIR(st.st_mode) || !(st.st_mode & 0111)) {
      *why = EACCES;
      return false;
    }
    return true;
  };
  int why = ENOENT;
  if (name.find('/') != std::string::npos) {
    if (usable(name, &why)) return name;
  } else {
    const char* path = getenv("PATH");
    std::string folders = path ? path : "/usr/local/bin:/usr/bin:/bin";
    for (size_t at = 0; at <= folders.size();) {
      size_t end = std::min(folders.find(':', at), folders.size());
      std::string folder = folders.substr(at, end - at);
      std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
      if (usable(candidate, &why)) return candidate;
      at = end + 1;
    }
  }
  return Error{why == ENOENT ? Code::kNotFound : Code::kPermission,
               name + (why == ENOENT ? ": command not found" : ": not executable"), why};
}

[[noreturn]] void RunChild(const ChildOptions& options, const std::string& program, int go_fd, int failed_fd) {
  auto fail = [&](int error) {
    [[maybe_unused]] ssize_t n = write(failed_fd, &error, sizeof error);
    _exit(127);
  };
  for (int signal : kPassedOn) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  uid_t uid;
  gid_t gid;
  std::string user, home;
  if (!options.as_root && CalledBySudo(&uid, &gid, &user, &home)) {
    if (initgroups(user.c_str(), gid) != 0 || setgid(gid) != 0 || setuid(uid) != 0) fail(errno);
    setenv("HOME", home.c_str(), 1);
    setenv("USER", user.c_str(), 1);
    setenv("LOGNAME", user.c_str(), 1);
    // A changed user is not dumpable, and its /proc entries would be root's.
    prctl(PR_SET_DUMPABLE, 1);
  }
  char byte;
  while (read(go_fd, &byte, 1) < 0 && errno == EINTR) {
  }
  std::vector<char*> argv;
  for (const std::string& argument : options.command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  if (errno == ENOEXEC) {  // a script without a first line: as a shell would
    argv.insert(argv.begin(), const_cast<char*>("/bin/sh"));
    argv[1] = const_cast<char*>(program.c_str());
    execv("/bin/sh", argv.data());
  }
  fail(errno);
  _exit(127);
}

}  // namespace

bool CalledBySudo(uid_t* uid, gid_t* gid, std::string* name, std::string* home) {
  const char* sudo_uid = getenv("SUDO_UID");
  if (geteuid() != 0 || !sudo_uid) return false;
  char* end = nullptr;
  unsigned long id = strtoul(sudo_uid, &end, 10);
  if (*end || id == 0) return false;
  passwd* entry = getpwuid(static_cast<uid_t>(id));
  if (!entry) return false;
  *uid = entry->pw_uid;
  *gid = entry->pw_gid;
  *name = entry->pw_name;
  *home = entry->pw_dir;
  return true;
}

base::Result<Child> Child::Prepare(const ChildOptions& options) {
  auto program = FindProgram(options.command.front());
  if (!program.ok()) return std::move(program).error();
  int go[2], failed[2];
  if (pipe2(go, O_CLOEXEC) != 0) return base::OsError(errno, "cannot make a pipe");
  if (pipe2(failed, O_CLOEXEC) != 0) {
    int error = errno;
    close(go[0]);
    close(go[1]);
    return base::OsError(error, "cannot make a pipe");
  }
  CatchSignals();
  pid_t pid = fork();
  if (pid == 0) {
    close(go[1]);
    close(failed[0]);
    RunChild(options, *program, go[0], failed[1]);
  }
  close(go[0]);
  close(failed[1]);
  Child child;
  child.pid_ = pid;
  child.go_fd_ = go[1];
  child.failed_fd_ = failed[0];
  if (pid < 0) return base::OsError(errno, "cannot start a process");
  g_child = pid;
  return child;
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      go_fd_(std::exchange(other.go_fd_, -1)),
      failed_fd_(std::exchange(other.failed_fd_, -1)) {}

Child::~Child() {
  if (go_fd_ >= 0) close(go_fd_);
  if (failed_fd_ >= 0) close(failed_fd_);
}

Status Child::Release() {
  close(std::exchange(go_fd_, -1));
  int error = 0;
  ssize_t n;
  do {
    n = read(failed_fd_, &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  close(std::exchange(failed_fd_, -1));
  if (n != static_cast<ssize_t>(sizeof error)) return {};
  int status;
  waitpid(pid_, &status, 0);
  g_child = 0;
  return base::OsError(error, "cannot execute the command");
}

int Child::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) return 125;
  }
  // From here on a signal is meant for tailspan alone: an interrupted explanation ends.
  g_child = 0;
  for (int signal : kPassedOn) ::signal(signal, SIG_DFL);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace tailspan::cli
