// Touches the pages of a file that is not in the page cache: fault_count PAGES OUT. Writes "majflt" of rusage to OUT.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t pages = strtoul(argv[1], nullptr, 10);
  const std::string path = std::string(argv[2]) + ".scratch";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  std::vector<char> block(4096, 'x');
  for (size_t i = 0; i < pages; ++i)
    if (write(fd, block.data(), block.size()) < 0) return 1;
  if (fsync(fd) != 0) return 1;
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  auto* map = static_cast<volatile char*>(mmap(nullptr, pages * 4096, PROT_READ, MAP_SHARED, fd, 0));
  if (map == MAP_FAILED) return 1;
  madvise(const_cast<char*>(map), pages * 4096, MADV_RANDOM);
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  char sum = 0;
  for (size_t i = 0; i < pages; ++i) sum = static_cast<char>(sum + map[i * 4096]);
  getrusage(RUSAGE_THREAD, &after);
  unlink(path.c_str());
  FILE* out = fopen(argv[2], "w");
  if (!out) return 1;
  fprintf(out, "%ld %d\n", after.ru_majflt - before.ru_majflt, sum);
  fclose(out);
  return 0;
}
