// Records of a loop ring as a watched process may write them.
#include <cstring>

#include "base/result.h"
#include "fuzz/target.h"
#include "probe/loop_ring_decode.h"

void tailspan::fuzz::RunOne(std::string_view input) {
  constexpr int64_t kNowNs = int64_t{1} << 60;
  model::RecordBatch batch;
  for (; input.size() >= sizeof(TailspanRingRecord); input.remove_prefix(sizeof(TailspanRingRecord))) {
    TailspanRingRecord record;
    std::memcpy(&record, input.data(), sizeof record);
    if (probe::IsPlausibleRecord(record, kNowNs)) probe::AppendRecord(7, record, &batch);
  }
  for (const auto& step : batch.steps) {
    TAILSPAN_CHECK(step.ready_mono_ns <= step.start_mono_ns && step.start_mono_ns <= step.end_mono_ns);
    TAILSPAN_CHECK(step.pid == 7 && step.tid > 0 && step.site < TAILSPAN_SITES);
  }
  for (const auto& poll : batch.polls) {
    TAILSPAN_CHECK(poll.enter_mono_ns <= poll.return_mono_ns && poll.return_mono_ns <= poll.resume_mono_ns);
  }
  for (const auto& socket : batch.sockets) {
    TAILSPAN_CHECK(socket.pid == 7 && socket.fd >= 0 && socket.from_mono_ns > 0 && socket.registered);
    TAILSPAN_CHECK(socket.local.family || !socket.remote.family);
    TAILSPAN_CHECK(socket.inode || !socket.local.family);
    for (const auto& address : {socket.local, socket.remote}) model::ToText(address);
  }
}
