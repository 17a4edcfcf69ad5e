#include "cli/child.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

#include "cli/caller.h"
#include "cli/group_witness.h"

namespace tailspan::cli {
namespace {

using base::Code;
using base::Error;
using base::Status;

std::atomic<pid_t> g_child{0};
// Bit n: signal n came while there was no command to take it.
std::atomic<uint64_t> g_noted{0};
rlimit g_descriptors{};  // as tailspan was called
bool g_descriptors_raised = false;

// What went to the whole process group has reached the command too, as long as it has not left the group (timeout(1)
// does, and interactive shells): it must not get it a second time.
void PassOn(int signal, siginfo_t* info, void*) {
  int error = errno;
  SentTo sent_to = WhereSent(signal);
  // A hangup reaches the leader of a session alone.
  if (sent_to == SentTo::kUnknown && info->si_code == SI_KERNEL && signal != SIGHUP) sent_to = SentTo::kGroup;
  pid_t child = g_child.load();
  if (child <= 0) {
    g_noted.fetch_or(uint64_t{1} << signal);
  } else if (sent_to != SentTo::kGroup || getpgid(child) != getpgrp()) {
    kill(child, signal);
  }
  errno = error;
}

constexpr int kPassedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};
struct sigaction g_before[std::size(kPassedOn)], g_pipe_before;
bool g_caught = false;

// What the caller has ignored (nohup, a shell's background job) stays ignored, in tailspan and in the command.
void CatchSignals() {
  struct sigaction action {};
  action.sa_sigaction = PassOn;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kPassedOn); ++i) {
    sigaction(kPassedOn[i], nullptr, &g_before[i]);
    if (g_before[i].sa_handler != SIG_IGN) sigaction(kPassedOn[i], &action, nullptr);
  }
  // A log line that nobody reads must not end the recording.
  action.sa_handler = SIG_IGN;
  action.sa_flags = 0;
  sigaction(SIGPIPE, &action, &g_pipe_before);
  g_caught = true;
}

void RestoreSignals() {
  if (!g_caught) return;
  for (size_t i = 0; i < std::size(kPassedOn); ++i) sigaction(kPassedOn[i], &g_before[i], nullptr);
  sigaction(SIGPIPE, &g_pipe_before, nullptr);
}

// While it lives no signal is handled in this thread.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

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

// Comes with all signals blocked; `mask` is what the command is to have.
[[noreturn]] void RunChild(const ChildOptions& options, const std::string& program, const sigset_t& mask, int go_fd,
                           int failed_fd) {
  auto fail = [&](int error) {
    [[maybe_unused]] ssize_t n = write(failed_fd, &error, sizeof error);
    _exit(127);
  };
  RestoreSignals();
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  if (g_descriptors_raised) setrlimit(RLIMIT_NOFILE, &g_descriptors);
  for (const std::string& name : options.unset) unsetenv(name.c_str());
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  const std::optional<Caller> caller = options.as_root ? std::nullopt : SudoCaller();
  if (caller) {
    if (setgroups(caller->groups.size(), caller->groups.data()) != 0 || setgid(caller->gid) != 0 ||
        setuid(caller->uid) != 0)
      fail(errno);
    setenv("HOME", caller->home.c_str(), 1);
    setenv("USER", caller->name.c_str(), 1);
    setenv("LOGNAME", caller->name.c_str(), 1);
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
  // Until the child is known nothing is passed on: what comes here is noted, or waits in this thread; what reaches the
  // child itself waits until it has the caller's handling.
  SignalsBlocked blocked;
  pid_t pid = fork();
  if (pid == 0) {
    close(go[1]);
    close(failed[0]);
    RunChild(options, *program, blocked.before(), go[0], failed[1]);
  }
  close(go[0]);
  close(failed[1]);
  Child child;
  child.pid_ = pid;
  child.go_fd_ = go[1];
  child.failed_fd_ = failed[0];
  if (pid < 0) return base::OsError(errno, "cannot start a process");
  g_child = pid;
  uint64_t noted = g_noted.exchange(0);
  for (int signal : kPassedOn) {
    if (noted >> signal & 1) kill(pid, signal);
  }
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
  siginfo_t ended;
  while (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT) < 0) {
    if (errno != EINTR) return 125;
  }
  g_child = 0;  // before its pid is free for others
  ::signal(SIGQUIT, SIG_DFL);
  int status = 0;
  waitpid(pid_, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool EndPassingOn() {
  RestoreSignals();
  constexpr uint64_t kEnding = uint64_t{1} << SIGINT | uint64_t{1} << SIGTERM | uint64_t{1} << SIGHUP;
  return (g_noted.exchange(0) & kEnding) != 0;
}

void RaiseDescriptorLimit() {
  constexpr rlim_t kWanted = 16'384;
  if (getrlimit(RLIMIT_NOFILE, &g_descriptors) != 0 || g_descriptors.rlim_cur >= kWanted) return;
  rlimit raised = g_descriptors;
  raised.rlim_cur = std::min(raised.rlim_max, kWanted);
  g_descriptors_raised = setrlimit(RLIMIT_NOFILE, &raised) == 0;
}

}  // namespace tailspan::cli
