#include "probe/python_runtime.h"

#include <gtest/gtest.h>
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
