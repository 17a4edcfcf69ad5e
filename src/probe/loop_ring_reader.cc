#include "probe/loop_ring_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/clock.h"
#include "context/loop_ring.h"
#include "probe/loop_ring_decode.h"

namespace tailspan::probe {
namespace {

constexpr size_t kChunkRecords = 4096;
constexpr int64_t kTidsHoldNs = 1'000'000'000;  // numbers come back
constexpr int64_t kTidsRetryNs = 20'000'000;    // when one is not known
constexpr uint64_t kJumpMax = 1ull << 40;       // a head that moved further is garbage

base::Error Invalid(const char* what) { return {base::Code::kDataLoss, std::string("loop ring: ") + what}; }

// The number of a process or thread in its own, innermost pid namespace; 0 it is gone.
uint32_t ReadInnerTid(const std::string& folder) {
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("NSpid:")) {
      return static_cast<uint32_t>(std::strtoul(line.c_str() + line.find_last_of("\t ") + 1, nullptr, 10));
    }
  }
  return 0;
}

std::map<uint32_t, uint32_t> ReadOuterTids(int32_t pid) {
  std::map<uint32_t, uint32_t> outer_tids;
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  DIR* threads = opendir(folder.c_str());
  if (!threads) return outer_tids;
  while (const dirent* entry = readdir(threads)) {
    const int tid = std::atoi(entry->d_name);
    if (tid <= 0) continue;
    if (const uint32_t inner = ReadInnerTid(folder + "/" + entry->d_name))
      outer_tids[inner] = static_cast<uint32_t>(tid);
  }
  closedir(threads);
  return outer_tids;
}

bool IsRingMemfd(int fd) {
  char link[64] = {};
  std::string own = "/proc/self/fd/" + std::to_string(fd);
  ssize_t size = readlink(own.c_str(), link, sizeof link - 1);
  return size > 0 && std::string_view(link) == "/memfd:" TAILSPAN_RING_NAME " (deleted)";
}

std::string HexRange(const MemoryRange& range) {
  char text[64];
  std::snprintf(text, sizeof text, "%llx-%llx", static_cast<unsigned long long>(range.start),
                static_cast<unsigned long long>(range.end));
  return text;
}

}  // namespace

base::Result<LoopRingReader> LoopRingReader::Open(int32_t pid, const ProcessContext& context,
                                                  base::LossCounters* loss) {
  if (context.ring_fd < 0) return base::Error{base::Code::kNotFound, "the process has no loop ring"};
  if (context.ring_version != TAILSPAN_RING_VERSION) {
    return base::Error{base::Code::kUnsupported, "loop ring version " + std::to_string(context.ring_version) +
                                                     " is not known: use the same tailspan on both sides"};
  }
  const std::string process = "/proc/" + std::to_string(pid);
  int fd = OpenRegularFile(process + "/fd/" + std::to_string(context.ring_fd));
  if (fd < 0 || !IsRingMemfd(fd)) {  // closed by the program, and the number maybe used again
    const int os_errno = errno;
    if (fd >= 0) close(fd);
    fd = -1;
    auto maps = ReadMaps(pid);
    if (!maps.ok()) return std::move(maps).error();
    for (const MemoryRange& range : FindMappings(*maps, TAILSPAN_RING_NAME)) {
      if ((fd = OpenRegularFile(process + "/map_files/" + HexRange(range))) >= 0) break;
    }
    if (fd < 0) return base::OsError(os_errno, "cannot open the loop ring of process " + std::to_string(pid));
  }
  return FromDescriptor(pid, fd, loss);
}

base::Result<LoopRingReader> LoopRingReader::FromDescriptor(int32_t pid, int fd, base::LossCounters* loss) {
  struct stat status = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  fstat(fd, &status);
  LoopRingReader reader(pid, fd, {status.st_dev, status.st_ino}, loss);
  const char* bad = nullptr;
  TailspanRingHeader header = {};
  if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
    bad = "it is not sealed";
  } else if (status.st_size != static_cast<off_t>(TAILSPAN_RING_BYTES)) {
    bad = "wrong size";
  } else if (!reader.ReadAll(&header, sizeof header, 0)) {
    bad = "it cannot be read";
  } else if (std::memcmp(header.magic, TAILSPAN_RING_MAGIC, sizeof header.magic) != 0 ||
             header.version != TAILSPAN_RING_VERSION) {
    bad = "wrong magic or version";
  } else if (header.record_bytes != TAILSPAN_RING_RECORD_BYTES || header.loop_slots != TAILSPAN_LOOP_SLOTS ||
             header.loop_records != TAILSPAN_LOOP_RECORDS || header.plain_slots != TAILSPAN_PLAIN_SLOTS ||
             header.plain_records != TAILSPAN_PLAIN_RECORDS || header.sites != TAILSPAN_SITES ||
             header.site_bytes != TAILSPAN_SITE_BYTES) {
    bad = "another layout";
  }
  if (bad) {
    loss->Add(base::Loss::kLoopRingBad);
    return Invalid(bad);
  }
  const uint32_t inner_pid = ReadInnerTid("/proc/" + std::to_string(pid));
  reader.is_namespaced_ = inner_pid != 0 && inner_pid != static_cast<uint32_t>(pid);
  return reader;
}

LoopRingReader::LoopRingReader(int32_t pid, int fd, Identity identity, base::LossCounters* loss)
    : pid_(pid), fd_(fd), identity_(identity), loss_(loss), slots_(TAILSPAN_SLOTS) {}

LoopRingReader::LoopRingReader(LoopRingReader&& other) noexcept
    : pid_(other.pid_),
      fd_(std::exchange(other.fd_, -1)),
      identity_(other.identity_),
      loss_(other.loss_),
      slots_(std::move(other.slots_)),
      buffer_(std::move(other.buffer_)),
      sites_read_(other.sites_read_),
      threads_lost_(other.threads_lost_),
      sites_lost_(other.sites_lost_),
      drop_per_mille_(other.drop_per_mille_),
      random_(other.random_),
      is_namespaced_(other.is_namespaced_),
      outer_tids_(std::move(other.outer_tids_)),
      tids_read_mono_ns_(other.tids_read_mono_ns_) {}

LoopRingReader& LoopRingReader::operator=(LoopRingReader&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(fd_, other.fd_);
  std::swap(identity_, other.identity_);
  std::swap(loss_, other.loss_);
  std::swap(slots_, other.slots_);
  std::swap(buffer_, other.buffer_);
  std::swap(sites_read_, other.sites_read_);
  std::swap(threads_lost_, other.threads_lost_);
  std::swap(sites_lost_, other.sites_lost_);
  std::swap(drop_per_mille_, other.drop_per_mille_);
  std::swap(random_, other.random_);
  std::swap(is_namespaced_, other.is_namespaced_);
  std::swap(outer_tids_, other.outer_tids_);
  std::swap(tids_read_mono_ns_, other.tids_read_mono_ns_);
  return *this;
}

LoopRingReader::~LoopRingReader() {
  if (fd_ >= 0) close(fd_);
}

bool LoopRingReader::ReadAll(void* to, size_t size, uint64_t at) const {
  auto* bytes = static_cast<uint8_t*>(to);
  while (size > 0) {
    ssize_t got = pread(fd_, bytes, size, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    at += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool LoopRingReader::Drain(model::RecordBatch* batch) {
  TailspanRingHeader header;
  std::vector<TailspanRingSlot> table(TAILSPAN_SLOTS);
  if (!ReadAll(&header, sizeof header, 0) ||
      !ReadAll(table.data(), table.size() * sizeof table[0], TAILSPAN_RING_SLOTS_AT)) {
    return false;
  }
  // Counters of the process's own; only their growth counts.
  if (header.threads_lost > threads_lost_) {
    loss_->Add(base::Loss::kLoopRingSlotsFull, header.threads_lost - threads_lost_);
    threads_lost_ = header.threads_lost;
  }
  if (header.sites_lost > sites_lost_) {
    loss_->Add(base::Loss::kLoopRingSitesFull, header.sites_lost - sites_lost_);
    sites_lost_ = header.sites_lost;
  }
  for (uint32_t i = 0; i < TAILSPAN_SLOTS; ++i) {
    if (table[i].head != slots_[i].next && !DrainSlot(i, table[i].head, batch)) return false;
  }
  uint32_t sites_used = 0;  // read after the records, so that every site they name is there
  if (!ReadAll(&sites_used, sizeof sites_used, offsetof(TailspanRingHeader, sites_used))) return false;
  DrainSites(sites_used, batch);
  return true;
}

void LoopRingReader::Lose(Slot* slot, base::Loss why, uint64_t count) {
  loss_->Add(why, count);
  slot->lost += count;
}

bool LoopRingReader::DrainSlot(uint32_t index, uint64_t head, model::RecordBatch* batch) {
  Slot& slot = slots_[index];
  const uint64_t capacity = tailspan_slot_capacity(index);
  if (head < slot.next || head - slot.next > kJumpMax) {
    Lose(&slot, base::Loss::kLoopRingBad, 1);  // how many records it was is not known
    slot.next = head;
    return true;
  }
  if (head - slot.next > capacity) {
    Lose(&slot, base::Loss::kLoopRingOverwritten, head - slot.next - capacity);
    slot.next = head - capacity;
  }
  const int64_t now_ns = base::MonoNowNs();
  const uint64_t head_at = TAILSPAN_RING_SLOTS_AT + index * sizeof(TailspanRingSlot) + offsetof(TailspanRingSlot, head);
  while (slot.next < head) {
    const uint64_t first = slot.next, offset = first % capacity;
    const uint64_t count = std::min({head - first, capacity - offset, static_cast<uint64_t>(kChunkRecords)});
    buffer_.resize(count * sizeof(TailspanRingRecord));
    uint64_t head_after = 0;
    if (!ReadAll(buffer_.data(), buffer_.size(),
                 tailspan_slot_records_at(index) + offset * sizeof(TailspanRingRecord)) ||
        !ReadAll(&head_after, sizeof head_after, head_at)) {
      return false;
    }
    for (uint64_t i = 0; i < count; ++i) {
      const uint8_t* bytes = buffer_.data() + i * sizeof(TailspanRingRecord);
      uint64_t seq;
      std::memcpy(&seq, bytes, sizeof seq);
      if (head_after >= first + i + capacity) {
        Lose(&slot, base::Loss::kLoopRingOverwritten, 1);  // written over, or just being, while we copied
      } else if (seq != 2 * (first + i) + 2) {
        Lose(&slot, base::Loss::kLoopRingTorn, 1);
      } else if (drop_per_mille_ && random_() % 1000 < drop_per_mille_) {
        Lose(&slot, base::Loss::kLoopRingDropOnPurpose, 1);
      } else {
        Take(&slot, bytes, now_ns, batch);
      }
    }
    slot.next = first + count;
  }
  return true;
}

void LoopRingReader::Take(Slot* slot, const void* bytes, int64_t now_ns, model::RecordBatch* batch) {
  TailspanRingRecord record;
  std::memcpy(&record, bytes, sizeof record);
  if (!IsPlausibleRecord(record, now_ns)) {
    Lose(slot, base::Loss::kLoopRingBad, 1);
    return;
  }
  if (is_namespaced_) {
    record.tid = OuterTid(record.tid);
    if (record.type != TAILSPAN_SOCKET) {
      record.step = OuterStep(record.step);
      record.waker_step = OuterStep(record.waker_step);
    }
  }
  const auto end_ns = static_cast<int64_t>(record.end_ns);
  if (slot->lost) {
    batch->loop_holes.push_back(
        {pid_, static_cast<int32_t>(record.tid), slot->last_end_ns, end_ns, std::exchange(slot->lost, 0)});
  }
  slot->last_end_ns = end_ns;
  slot->tid = record.tid;
  AppendRecord(pid_, record, batch);
}

uint32_t LoopRingReader::OuterTid(uint32_t inner_tid) {
  const int64_t now_ns = base::MonoNowNs();
  auto found = outer_tids_.find(inner_tid);
  if (now_ns - tids_read_mono_ns_ > (found == outer_tids_.end() ? kTidsRetryNs : kTidsHoldNs)) {
    tids_read_mono_ns_ = now_ns;
    // Those of threads that ended stay: their last records may still come.
    for (const auto& [inner, outer] : ReadOuterTids(pid_)) outer_tids_[inner] = outer;
    found = outer_tids_.find(inner_tid);
  }
  return found == outer_tids_.end() ? inner_tid : found->second;
}

// A plain thread stands as a step by its number.
uint64_t LoopRingReader::OuterStep(uint64_t step) {
  const int32_t inner_tid = model::PlainThreadOf(step);
  return inner_tid ? TAILSPAN_PLAIN_STEP | OuterTid(static_cast<uint32_t>(inner_tid)) : step;
}

void LoopRingReader::DrainSites(uint32_t used, model::RecordBatch* batch) {
  used = std::min(used, TAILSPAN_SITES);
  for (; sites_read_ < used; ++sites_read_) {
    char text[TAILSPAN_SITE_BYTES];
    if (!ReadAll(text, sizeof text, TAILSPAN_RING_SITES_AT + uint64_t{sites_read_} * TAILSPAN_SITE_BYTES)) return;
    std::string name(text, strnlen(text, sizeof text));
    for (char& c : name) {
      if (c < 0x20 || c == 0x7F) c = '?';  // also every byte outside ASCII, which may be half a character
    }
    batch->sites.push_back({pid_, static_cast<uint16_t>(sites_read_), std::move(name)});
  }
}

}  // namespace tailspan::probe
