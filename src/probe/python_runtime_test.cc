#include "probe/python_runtime.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "probe/bpf/wire.h"

namespace tailspan::probe {
namespace {

TEST(PythonRuntime, NoPythonHere) { EXPECT_FALSE(FindPythonRuntime(getpid())); }

TEST(PythonRuntime, ProcessThatIsGone) { EXPECT_FALSE(FindPythonRuntime(0x3fffffff)); }

// What a process maps under an interpreter's name need not be what stands there when it is looked at.
TEST(PythonRuntime, FilesThatAreNone) {
  const std::string folder = "/tmp/tailspan_python_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string fifo = folder + "/fifo", text = folder + "/text", link = folder + "/link";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::ofstream(text) << "#!/bin/sh\n";
  ASSERT_EQ(symlink(fifo.c_str(), link.c_str()), 0);
  for (const std::string& path : {fifo, text, link, folder, std::string("/dev/zero")}) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5);  // one that waits for the FIFO's other end
      _exit(FindDynamicSymbol(path, "_PyRuntime") ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << path;
  }
  for (const std::string& path : {fifo, text, link}) unlink(path.c_str());
  rmdir(folder.c_str());
}

// As after an upgrade: the file is gone from its path, the process runs on.
TEST(PythonRuntime, InterpreterWhoseFileWasReplaced) {
  const char* python = "/usr/bin/python3";
  if (access(python, X_OK) != 0) GTEST_SKIP() << "no " << python;
  if (geteuid() != 0) GTEST_SKIP() << "needs CAP_SYS_ADMIN for /proc/PID/map_files";
  const std::string copy = "/tmp/python3." + std::to_string(getpid());
  {
    std::ifstream from(python, std::ios::binary);
    std::ofstream to(copy, std::ios::binary);
    to << from.rdbuf();
  }
  ASSERT_EQ(chmod(copy.c_str(), 0700), 0);
  int out[2];
  ASSERT_EQ(pipe(out), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    execl(copy.c_str(), copy.c_str(), "-c", "import time; print(1, flush=True); time.sleep(60)", nullptr);
    _exit(127);
  }
  close(out[1]);
  char byte;
  EXPECT_EQ(read(out[0], &byte, 1), 1);
  const auto before = FindPythonRuntime(child);
  unlink(copy.c_str());
  const auto after = FindPythonRuntime(child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(out[0]);
  if (!before) GTEST_SKIP() << python << " keeps its state in a library";
  ASSERT_TRUE(after);
  EXPECT_EQ(after->low, before->low);
}

template <typename T>
T ReadMemory(pid_t pid, uint64_t address) {
  T value{};
  iovec here{&value, sizeof value}, there{reinterpret_cast<void*>(address), sizeof value};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == ssize_t{sizeof value} ? value : T{};
}

// The interpreter's own view, by ctypes, of where _PyRuntime lies; it has one thread, which must be the GIL's holder.
// Where there are subinterpreters it has two, which are not to be mistaken for the main one.
TEST(PythonRuntime, AgreesWithTheInterpreter) {
  const char* named = std::getenv("TAILSPAN_TEST_PYTHON");
  const char* python = named ? named : "/usr/bin/python3";
  if (access(python, X_OK) != 0) GTEST_SKIP() << "no " << python;
  int to_us[2], to_child[2];
  ASSERT_EQ(pipe(to_us), 0);
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(to_us[1], STDOUT_FILENO);
    dup2(to_child[0], STDIN_FILENO);
    close(to_child[1]);
    execl(python, python, "-c",
          "import ctypes,sys\n"
          "try:\n"
          "  import _interpreters\n"
          "  keep = _interpreters.create(), _interpreters.create()\n"
          "except ImportError: pass\n"
          "print(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi,'_PyRuntime')), sys.version_info[1], "
          "flush=True)\n"
          "sys.stdin.read()",
          nullptr);
    _exit(127);
  }
  close(to_us[1]);
  close(to_child[0]);
  FILE* answers = fdopen(to_us[0], "r");
  unsigned long address = 0;
  int minor = 0;
  ASSERT_EQ(std::fscanf(answers, "%lu %d", &address, &minor), 2);
  const auto runtime = FindPythonRuntime(child);
  uint64_t holder = 0, holder_tid = 0;
  if (runtime && runtime->holder_address) {
    holder = ReadMemory<uint64_t>(child, runtime->holder_address);
    holder_tid = ReadMemory<uint64_t>(child, holder + runtime->holder_tid_offset);
    if (runtime->holder_by_pthread) holder_tid = ReadMemory<uint32_t>(child, holder_tid + kWireTidInPthread);
  }
  close(to_child[1]);
  waitpid(child, nullptr, 0);
  fclose(answers);
  ASSERT_TRUE(runtime);
  EXPECT_EQ(runtime->low, address);
  EXPECT_GE(runtime->high, runtime->low + 0x2a0);
  EXPECT_EQ(runtime->version, "3." + std::to_string(minor));
  EXPECT_FALSE(runtime->is_starting);
  if (minor <= 14) {
    EXPECT_EQ(holder_tid, static_cast<uint64_t>(child));
  }
}

TEST(DynamicSymbol, RefusesWhatIsNoElfFile) {
  const std::string path = ::testing::TempDir() + "/not_elf";
  for (const std::string& bytes : {std::string(),
                                   std::string("\x7f"
                                               "ELF"),
                                   std::string(64, '\x7f'), std::string(4096, 'x')}) {
    std::ofstream(path, std::ios::trunc) << bytes;
    EXPECT_FALSE(FindDynamicSymbol(path, "_PyRuntime"));
  }
  std::remove(path.c_str());
}

// A file whose tables point beyond its end must be refused, not read.
TEST(DynamicSymbol, RefusesTablesBeyondTheFile) {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string bytes(8192, '\0');
  self.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::string path = ::testing::TempDir() + "/cut_elf";
  std::ofstream(path, std::ios::trunc) << bytes;
  EXPECT_FALSE(FindDynamicSymbol(path, "_PyRuntime"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tailspan::probe
