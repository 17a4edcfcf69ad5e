#include "probe/record_decoder.h"

#include <gtest/gtest.h>

#include <cstring>

#include "probe/bpf/wire.h"

namespace tailspan::probe {
namespace {

WireWait Sample() {
  WireWait wait{};
  wait.window.type = kWireWait;
  wait.window.tid = 12;
  wait.window.tgid = 10;
  wait.window.sequence = 3;
  wait.window.start_mono_ns = 1000;
  wait.window.on_cpu_ns = 400;
  wait.window.short_ns[kWireClassFutex] = 100;
  wait.window.short_count[kWireClassFutex] = 2;
  wait.window.end_mono_ns = 1500;
  wait.wake_mono_ns = 1900;
  wait.end_mono_ns = 2000;
  wait.facts.wait_class = kWireClassSleep;
  wait.facts.call = kWireCallSleep;
  wait.facts.syscall_number = 35;
  wait.facts.fd = -1;
  const uint8_t span[8] = {0, 0, 0, 0, 0, 0, 1, 2};
  std::memcpy(&wait.window.context.span_id, span, 8);
  wait.occupants[0] = {.tid = 5, .tgid = 5, .cgroup_id = 9, .ns = 30, .comm = "few"};
  wait.occupants[2] = {.tid = 6, .tgid = 6, .cgroup_id = 9, .ns = 60, .comm = "most"};
  wait.occupant_idle_ns = 10;
  return wait;
}

TEST(RecordDecoder, Wait) {
  const WireWait raw = Sample();
  model::RecordBatch batch;
  ASSERT_TRUE(DecodeRecord(&raw, sizeof raw, &batch));
  ASSERT_EQ(batch.intervals.size(), 1u);
  const model::ThreadInterval& one = batch.intervals[0];
  EXPECT_EQ(one.pid, 10);
  EXPECT_EQ(one.tid, 12);
  EXPECT_EQ(one.sequence, 3u);
  EXPECT_EQ(one.window_start_mono_ns, 1000);
  EXPECT_EQ(one.on_cpu_ns, 400);
  EXPECT_EQ(one.short_ns[static_cast<size_t>(model::WaitClass::kFutex)], 100);
  EXPECT_EQ(one.short_count[static_cast<size_t>(model::WaitClass::kFutex)], 2u);
  EXPECT_EQ(one.wait_start_mono_ns, 1500);
  EXPECT_EQ(one.wake_mono_ns, 1900);
  EXPECT_EQ(one.wait_end_mono_ns, 2000);
  EXPECT_EQ(one.cause, model::Cause::kSleep);
  EXPECT_EQ(one.span_id, 0x0102u);
  EXPECT_EQ(one.occupants[0].tid, 6);
  EXPECT_EQ(one.occupants[0].ns, 60);
  EXPECT_EQ(one.occupants[1].tid, 5);
  EXPECT_EQ(one.occupant_idle_ns, 10);
}

TEST(RecordDecoder, WakingOutsideItsWaitIsClamped) {
  WireWait raw = Sample();
  raw.wake_mono_ns = 2010;
  model::RecordBatch batch;
  ASSERT_TRUE(DecodeRecord(&raw, sizeof raw, &batch));
  EXPECT_EQ(batch.intervals[0].wake_mono_ns, 2000);
}

TEST(RecordDecoder, FlushHasNoWait) {
  WireWindow raw = Sample().window;
  raw.type = kWireFlush;
  model::RecordBatch batch;
  ASSERT_TRUE(DecodeRecord(&raw, sizeof raw, &batch));
  EXPECT_EQ(batch.intervals[0].wait_start_mono_ns, 1500);
  EXPECT_EQ(batch.intervals[0].wait_end_mono_ns, 1500);
}

TEST(RecordDecoder, UnreadBookIsMinusOne) {
  WireWindow raw = Sample().window;
  raw.type = kWireFlush;
  raw.runtime_ns = UINT64_MAX;
  model::RecordBatch batch;
  ASSERT_TRUE(DecodeRecord(&raw, sizeof raw, &batch));
  EXPECT_EQ(batch.intervals[0].kernel_run_ns, -1);
}

TEST(RecordDecoder, RefusesShortAndUnknownRecords) {
  WireWait raw = Sample();
  model::RecordBatch batch;
  for (size_t bytes = 0; bytes < sizeof raw; ++bytes) EXPECT_FALSE(DecodeRecord(&raw, bytes, &batch)) << bytes;
  raw.window.type = 99;
  EXPECT_FALSE(DecodeRecord(&raw, sizeof raw, &batch));
  EXPECT_TRUE(batch.intervals.empty());
}

TEST(RecordDecoder, ThreadEvents) {
  WireThreadRecord raw{};
  raw.type = kWireThread;
  raw.event = kWireForkThread;
  raw.tid = 11;
  raw.tgid = 10;
  raw.parent_tgid = 10;
  raw.at_mono_ns = 5;
  std::strcpy(raw.comm, "worker");
  model::RecordBatch batch;
  ASSERT_TRUE(DecodeRecord(&raw, sizeof raw, &batch));
  ASSERT_EQ(batch.process_events.size(), 1u);
  EXPECT_EQ(batch.process_events[0].kind, model::ProcessEventKind::kThread);
  EXPECT_EQ(batch.process_events[0].tid, 11);
  EXPECT_STREQ(batch.process_events[0].comm.data(), "worker");
}

TEST(RecordDecoder, Retransmission) {
  WireRetransmitRecord raw{};
  raw.type = kWireRetransmit;
  raw.at_mono_ns = 7;
  raw.rto_ns = 200'000'000;
  raw.sent_mono_ns = 777;
  raw.round_trip_us = 55;
  raw.segments = 1;
  raw.flow.family = 2;
  raw.flow.local[0] = 10;
  raw.flow.local_port = 80;
  model::RecordBatch batch;
  ASSERT_TRUE(DecodeRecord(&raw, sizeof raw, &batch));
  ASSERT_EQ(batch.retransmissions.size(), 1u);
  EXPECT_EQ(ToText(batch.retransmissions[0].local), "10.0.0.0:80");
  EXPECT_EQ(batch.retransmissions[0].rto_ns, 200'000'000);
  EXPECT_EQ(batch.retransmissions[0].sent_mono_ns, 777);
  EXPECT_EQ(batch.retransmissions[0].round_trip_ns, 55'000);
}

}  // namespace
}  // namespace tailspan::probe
