#include "cli/group_witness.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

namespace tailspan::cli {
namespace {

struct Question {
  uint32_t number = 0;
  int32_t signal = 0;
};
struct Answer {
  uint32_t number = 0;
  int32_t got = 0;
};

// The kernel gives a group's signal to its members one after the other, this process and its witness within
// microseconds.
constexpr timespec kPatience{0, 5'000'000};
constexpr timeval kAnswerMax{0, 200'000};  // it may be stopped

std::atomic<int> g_witness{-1};  // the socket to it
std::atomic_flag g_asking;       // by a thread of this process
uint32_t g_questions = 0;

// Comes with all signals blocked, and leaves them so: they stay pending until they are asked for.
[[noreturn]] void Watch(int fd) {
  prctl(PR_SET_NAME, "tailspan-group");
  dup2(fd, 0);
  // Nothing of tailspan's, above all no pipe that somebody waits for the end of.
  syscall(SYS_close_range, 1u, ~0u, 0u);
  Question question;
  while (recv(0, &question, sizeof question, 0) == static_cast<ssize_t>(sizeof question)) {
    sigset_t asked;
    sigemptyset(&asked);
    sigaddset(&asked, question.signal);
    Answer answer{question.number, sigtimedwait(&asked, nullptr, &kPatience) == question.signal};
    if (send(0, &answer, sizeof answer, MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);  // tailspan is gone
}

}  // namespace

GroupWitness::GroupWitness() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &kAnswerMax, sizeof kAnswerMax);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pid_ = fork();
  if (pid_ == 0) Watch(ends[1]);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(ends[1]);
  if (pid_ > 0) {
    g_witness = ends[0];
  } else {
    close(ends[0]);
  }
}

void GroupWitness::End() {
  if (pid_ <= 0) return;
  close(g_witness.exchange(-1));
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

SentTo WhereSent(int signal) {
  while (g_asking.test_and_set(std::memory_order_acquire)) {
  }
  const int fd = g_witness.load();
  SentTo sent_to = SentTo::kUnknown;
  const Question question{++g_questions, signal};
  if (fd >= 0 && send(fd, &question, sizeof question, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) {
    Answer answer;
    while (recv(fd, &answer, sizeof answer, 0) == static_cast<ssize_t>(sizeof answer)) {
      if (answer.number != question.number) continue;  // to one that was given up
      sent_to = answer.got ? SentTo::kGroup : SentTo::kThisProcess;
      break;
    }
  }
  g_asking.clear(std::memory_order_release);
  return sent_to;
}

}  // namespace tailspan::cli
