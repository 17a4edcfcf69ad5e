#include "probe/python_runtime.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace tailspan::probe {
namespace {

TEST(PythonRuntime, NoPythonHere) { EXPECT_FALSE(FindPythonRuntime(getpid())); }

TEST(PythonRuntime, ProcessThatIsGone) { EXPECT_FALSE(FindPythonRuntime(0x3fffffff)); }

// The interpreter's own view of where _PyRuntime lies, by ctypes.
TEST(PythonRuntime, AgreesWithTheInterpreter) {
  if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/python3";
  int to_us[2], to_child[2];
  ASSERT_EQ(pipe(to_us), 0);
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(to_us[1], STDOUT_FILENO);
    dup2(to_child[0], STDIN_FILENO);
    close(to_child[1]);
    execl("/usr/bin/python3", "python3", "-c",
          "import ctypes,sys\n"
          "print(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi,'_PyRuntime')), flush=True)\n"
          "sys.stdin.read()",
          nullptr);
    _exit(127);
  }
  close(to_us[1]);
  close(to_child[0]);
  FILE* answers = fdopen(to_us[0], "r");
  unsigned long address = 0;
  ASSERT_EQ(std::fscanf(answers, "%lu", &address), 1);
  const auto runtime = FindPythonRuntime(child);
  close(to_child[1]);
  waitpid(child, nullptr, 0);
  fclose(answers);
  ASSERT_TRUE(runtime);
  EXPECT_EQ(runtime->low, address);
  EXPECT_GT(runtime->high, runtime->low + 1000);
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
