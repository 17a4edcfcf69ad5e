// Waits of known kind and length, with the program's own clock around each: known_waits KIND COUNT OUT.
// Writes a line "tid start_mono_ns end_mono_ns cpu_ns" for each wait to OUT. Waits for the disk are as long as the disk
// makes them; where it could be slowed down, there is a file OUT.slowed.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "slow_disk.h"

namespace {

int64_t NowNs(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

void Check(bool ok, const char* what) {
  if (ok) return;
  perror(what);
  std::exit(1);
}

void SleepUs(int us) {
  timespec wait{0, us * 1000l};
  nanosleep(&wait, nullptr);
}

int LengthUs(int i) { return 1200 + i % 7 * 300; }

struct Log {
  explicit Log(const char* path) : file(fopen(path, "w")) { Check(file, path); }
  ~Log() { fclose(file); }
  void Around(const std::function<void()>& wait) {
    const int64_t start = NowNs(), start_cpu = NowNs(CLOCK_THREAD_CPUTIME_ID);
    wait();
    const int64_t end_cpu = NowNs(CLOCK_THREAD_CPUTIME_ID), end = NowNs();
    fprintf(file, "%ld %ld %ld %ld\n", syscall(SYS_gettid), start, end, end_cpu - start_cpu);
  }
  FILE* file;
};

// A connected pair of TCP sockets over loopback.
void TcpPair(int* left, int* right) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  // Fixed, or the kernel would go on growing the buffers of a pair that is never read.
  const int buffer_bytes = 64 << 10;
  setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  Check(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  Check(listen(listener, 1) == 0, "listen");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  *left = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(*left, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
  Check(connect(*left, reinterpret_cast<sockaddr*>(&address), length) == 0, "connect");
  *right = accept(listener, nullptr, nullptr);
  close(listener);
}

// Without a wait of its own kind, since those are what is measured.
void Await(const std::atomic<int>& number, int least) {
  while (number < least) SleepUs(100);
}

// Waits by `wait` until another thread calls `release`, LengthUs after the wait has begun: however busy the machine is,
// none is shorter.
void WithOther(int count, Log* log, const std::function<void()>& wait, const std::function<void()>& release,
               const std::function<void()>& after = {}) {
  std::atomic<int> begun{0}, released{0};
  std::thread other([&] {
    for (int i = 0; i < count; ++i) {
      Await(begun, i + 1);
      SleepUs(LengthUs(i));
      release();
      released = i + 1;
    }
  });
  for (int i = 0; i < count; ++i) {
    log->Around([&] {
      begun = i + 1;
      wait();
    });
    Await(released, i + 1);  // it may go on for a while after the wait has ended
    if (after) after();
  }
  other.join();
}

void Byte(int fd) { Check(write(fd, "x", 1) == 1, "write"); }
void TakeByte(int fd) {
  char byte;
  Check(read(fd, &byte, 1) == 1, "read");
}

void RunSleep(int count, Log* log) {
  for (int i = 0; i < count; ++i) log->Around([i] { SleepUs(LengthUs(i)); });
}

void RunPipe(int count, Log* log) {
  int fds[2];
  Check(pipe(fds) == 0, "pipe");
  WithOther(
      count, log, [&] { TakeByte(fds[0]); }, [&] { Byte(fds[1]); });
}

void RunUnix(int count, Log* log) {
  int fds[2];
  Check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
  WithOther(
      count, log, [&] { TakeByte(fds[0]); }, [&] { Byte(fds[1]); });
}

void RunRecv(int count, Log* log) {
  int left, right;
  TcpPair(&left, &right);
  char byte;
  WithOther(
      count, log, [&] { Check(recv(right, &byte, 1, 0) == 1, "recv"); }, [&] { Byte(left); });
}

void RunPollRead(int count, Log* log) {
  int left, right;
  TcpPair(&left, &right);
  WithOther(
      count, log,
      [&] {
        pollfd one{right, POLLIN, 0};
        Check(poll(&one, 1, 5000) == 1, "poll");
      },
      [&] { Byte(left); }, [&] { TakeByte(right); });
}

void RunEpoll(int count, Log* log) {
  int left, right;
  TcpPair(&left, &right);
  const int epoll = epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN;
  Check(epoll_ctl(epoll, EPOLL_CTL_ADD, right, &event) == 0, "epoll_ctl");
  WithOther(
      count, log, [&] { Check(epoll_wait(epoll, &event, 1, 5000) == 1, "epoll_wait"); }, [&] { Byte(left); },
      [&] { TakeByte(right); });
}

std::vector<char> FillSocket(int fd) {
  std::vector<char> block(1 << 16);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  // What was sent may still be on its way to the other end: full is when nothing goes any more.
  for (bool is_full = false; !is_full; SleepUs(500)) {
    is_full = true;
    while (send(fd, block.data(), block.size(), 0) > 0) is_full = false;
  }
  return block;
}

void DrainSocket(int fd, std::vector<char>* block) {
  int64_t taken = 0;
  // Enough to make room by the kernel's rule (a third of the buffer), so that the sender wakes.
  while (taken < 4 << 20) {
    const ssize_t n = recv(fd, block->data(), block->size(), MSG_DONTWAIT);
    if (n <= 0) break;
    taken += n;
  }
}

void RunSend(int count, Log* log) {
  int left, right;
  TcpPair(&left, &right);
  std::vector<char> block = FillSocket(left), taken(1 << 16);
  fcntl(left, F_SETFL, 0);
  WithOther(
      count, log, [&] { Check(send(left, block.data(), 1, 0) == 1, "send"); }, [&] { DrainSocket(right, &taken); },
      [&] { FillSocket(left), fcntl(left, F_SETFL, 0); });
}

void RunPollWrite(int count, Log* log) {
  int left, right;
  TcpPair(&left, &right);
  std::vector<char> taken(1 << 16);
  FillSocket(left);
  WithOther(
      count, log,
      [&] {
        pollfd one{left, POLLOUT, 0};
        Check(poll(&one, 1, 5000) == 1, "poll");
      },
      [&] { DrainSocket(right, &taken); }, [&] { FillSocket(left); });
}

void RunLock(int count, Log* log) {
  std::mutex mutex;
  std::atomic<int> held{0}, begun{0}, done{0};
  std::thread other([&] {
    for (int i = 0; i < count; ++i) {
      Await(done, i);
      std::lock_guard lock(mutex);
      held = i + 1;
      Await(begun, i + 1);
      SleepUs(LengthUs(i));
    }
  });
  for (int i = 0; i < count; ++i) {
    Await(held, i + 1);
    log->Around([&] {
      begun = i + 1;
      std::lock_guard lock(mutex);
    });
    done = i + 1;
  }
  other.join();
}

void RunChild(int count, Log* log) {
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Check(shared != MAP_FAILED, "mmap");
  auto* begun = new (shared) std::atomic<int>(0);
  for (int i = 0; i < count; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      Await(*begun, i + 1);
      SleepUs(LengthUs(i));
      _exit(0);
    }
    log->Around([&] {
      *begun = i + 1;
      Check(waitpid(child, nullptr, 0) == child, "waitpid");
    });
  }
}

std::string scratch_path, slowed_path;

// As long as it lives, what this process reads and writes in its scratch file, which is there, waits.
struct SlowScratch {
  SlowScratch() : disk(scratch_path) {
    if (disk.slowed()) fclose(fopen(slowed_path.c_str(), "w"));
  }
  SlowDisk disk;
};

void RunSync(int count, Log* log) {
  const int fd = open(scratch_path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  Check(fd >= 0, "open");
  std::vector<char> block(1 << 16, 'x');
  const SlowScratch slow;
  for (int i = 0; i < count; ++i) {
    Check(pwrite(fd, block.data(), block.size(), i % 16 * 65536l) > 0, "pwrite");
    log->Around([&] { Check(fsync(fd) == 0, "fsync"); });
  }
  unlink(scratch_path.c_str());
}

// A file of 4,096 pages on disk and not in the page cache.
int ColdFile(size_t* bytes) {
  *bytes = 4096ul * 4096;
  const int fd = open(scratch_path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  Check(fd >= 0, "open");
  std::vector<char> block(1 << 20, 'x');
  for (size_t at = 0; at < *bytes; at += block.size()) Check(write(fd, block.data(), block.size()) > 0, "write");
  Check(fsync(fd) == 0, "fsync");
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  return fd;
}

void RunRead(int count, Log* log) {
  size_t bytes;
  const int fd = ColdFile(&bytes);
  const SlowScratch slow;
  char byte;
  for (int i = 0; i < count; ++i) {
    const off_t at = static_cast<off_t>(static_cast<size_t>(i) * 2654435761u % (bytes / 4096) * 4096);
    log->Around([&] { Check(pread(fd, &byte, 1, at) == 1, "pread"); });
  }
  unlink(scratch_path.c_str());
}

void RunFault(int count, Log* log) {
  size_t bytes;
  const int fd = ColdFile(&bytes);
  auto* map = static_cast<volatile char*>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0));
  Check(map != MAP_FAILED, "mmap");
  madvise(const_cast<char*>(map), bytes, MADV_RANDOM);
  const SlowScratch slow;
  char sum = 0;
  for (int i = 0; i < count; ++i) {
    const size_t at = static_cast<size_t>(i) * 2654435761u % (bytes / 4096) * 4096;
    log->Around([&] { sum = static_cast<char>(sum + map[at]); });
  }
  if (sum == 1) puts("");
  unlink(scratch_path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::map<std::string, void (*)(int, Log*)> kinds = {
      {"sleep", RunSleep},        {"pipe", RunPipe},   {"unix", RunUnix},  {"recv", RunRecv},
      {"poll_read", RunPollRead}, {"epoll", RunEpoll}, {"send", RunSend},  {"poll_write", RunPollWrite},
      {"lock", RunLock},          {"child", RunChild}, {"fsync", RunSync}, {"read", RunRead},
      {"fault", RunFault},
  };
  const auto kind = kinds.find(argv[1]);
  if (kind == kinds.end()) return 2;
  scratch_path = std::string(argv[3]) + ".scratch";
  slowed_path = std::string(argv[3]) + ".slowed";
  Log log(argv[3]);
  kind->second(std::atoi(argv[2]), &log);
  return 0;
}
