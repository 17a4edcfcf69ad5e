#include "cli/pending_records.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace tailspan::cli {
namespace {

using base::Loss;

template <typename Row>
size_t BytesOf(const Row&) {
  return sizeof(Row);
}
size_t BytesOf(const model::Span& span) { return ApproxBytes(span); }
size_t BytesOf(const model::LoopSite& site) { return sizeof site + site.name.size(); }
size_t BytesOf(const model::ProcessInfo& info) {
  return sizeof info + info.comm.size() + info.command.size() + info.cgroup.size() + info.runtime.size();
}

// Calls `take` with the pairs of the two batches' rows of what is many: one row for each thing that happens.
template <typename Take>
void ForEachRecord(model::RecordBatch* from, model::RecordBatch* to, Take take) {
  take(&from->intervals, &to->intervals);
  take(&from->retransmissions, &to->retransmissions);
  take(&from->sockets_ready, &to->sockets_ready);
  take(&from->block_requests, &to->block_requests);
  take(&from->cpu_samples, &to->cpu_samples);
  take(&from->steps, &to->steps);
  take(&from->span_changes, &to->span_changes);
  take(&from->polls, &to->polls);
  take(&from->gc_pauses, &to->gc_pauses);
}

// The same for what says what held.
template <typename Take>
void ForEachFact(model::RecordBatch* from, model::RecordBatch* to, Take take) {
  take(&from->process_events, &to->process_events);
  take(&from->processes, &to->processes);
  take(&from->sockets, &to->sockets);
  take(&from->sites, &to->sites);
  take(&from->loop_holes, &to->loop_holes);
  take(&from->clock_pairs, &to->clock_pairs);
}

template <typename Row>
void MoveTail(std::vector<Row>* from, std::vector<Row>* to) {
  if (to->empty()) {
    *to = std::move(*from);
  } else {
    to->insert(to->end(), std::make_move_iterator(from->begin()), std::make_move_iterator(from->end()));
  }
  from->clear();
}

}  // namespace

void PendingRecords::Add(model::RecordBatch&& batch) {
  if (bytes() >= bytes_max_) Shed(&batch);
  auto move = [this](auto* from, auto* to) {
    for (const auto& row : *from) waiting_bytes_ += BytesOf(row);
    MoveTail(from, to);
  };
  move(&batch.spans, &waiting_.spans);
  ForEachRecord(&batch, &waiting_, move);
  ForEachFact(&batch, &waiting_, move);
}

model::RecordBatch PendingRecords::Take() {
  for (const auto& [thread, hole] : holes_) waiting_.loop_holes.push_back(hole);
  holes_.clear();
  taken_bytes_ += std::exchange(waiting_bytes_, 0);
  return std::exchange(waiting_, {});
}

void PendingRecords::Shed(model::RecordBatch* batch) {
  uint64_t shed = 0;
  auto drop = [&shed](auto* from, auto*) {
    shed += from->size();
    from->clear();
  };
  loss_->Add(Loss::kShedUnderLoad, batch->spans.size());
  batch->spans.clear();
  ShedLoopRecords(batch);
  ForEachRecord(batch, batch, drop);
  if (bytes() >= bytes_max_ + bytes_max_ / 8) ForEachFact(batch, batch, drop);
  loss_->Add(Loss::kRecordsShed, shed);
}

void PendingRecords::ShedLoopRecords(model::RecordBatch* batch) {
  auto lost = [this](int32_t pid, int32_t tid, int64_t start_mono_ns, int64_t end_mono_ns) {
    model::LoopHole& hole =
        holes_.try_emplace({pid, tid}, model::LoopHole{pid, tid, start_mono_ns, end_mono_ns, 0}).first->second;
    hole.after_mono_ns = std::min(hole.after_mono_ns, start_mono_ns);
    hole.before_mono_ns = std::max(hole.before_mono_ns, end_mono_ns);
    ++hole.record_count;
  };
  for (const auto& step : batch->steps) lost(step.pid, step.tid, step.start_mono_ns, step.end_mono_ns);
  for (const auto& poll : batch->polls) lost(poll.pid, poll.tid, poll.enter_mono_ns, poll.resume_mono_ns);
  for (const auto& change : batch->span_changes) lost(change.pid, change.tid, change.at_mono_ns, change.at_mono_ns);
  for (const auto& pause : batch->gc_pauses) lost(pause.pid, pause.tid, pause.start_mono_ns, pause.end_mono_ns);
}

}  // namespace tailspan::cli
