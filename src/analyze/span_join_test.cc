// Programs without our hooks: which thread works for which span, and how that is told.
#include "analyze/span_join.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "analyze/recording_builder.h"

namespace tailspan::analyze {
namespace {

using model::Cause;
using model::WaitClass;

// "start-end span cause join confidence", us.
std::string Print(const RecordingBuilder& recording, size_t which = 0) {
  base::LossCounters loss;
  auto ledgers = BuildLedgers(recording.batch, {}, &loss);
  EXPECT_GT(ledgers.size(), which);
  if (ledgers.size() <= which) return "";
  EXPECT_EQ(model::CheckLaw(ledgers[which]), "");
  EXPECT_TRUE(Contradictions(loss).empty());
  std::string out;
  for (const model::LedgerPiece& piece : ledgers[which].pieces) {
    out += fmt::format("{}-{} {} {} {} {:g}\n", piece.start_ns / 1000, piece.end_ns / 1000,
                       ledgers[which].paths[piece.path].back(), model::CauseName(piece.cause),
                       model::JoinName(piece.join), piece.blame.confidence);
  }
  return out;
}

RecordingBuilder& OnThread(RecordingBuilder& r, uint64_t thread_id, int32_t pid = 0) {
  r.batch.spans.back().thread_id = thread_id;
  r.batch.spans.back().pid = pid;
  return r;
}

TEST(SpanJoin, TheInnermostOpenSpanOfTheThreadWins) {
  RecordingBuilder r;
  OnThread(r.Span(1, 0, "root", 0, 100), 101);
  OnThread(r.Span(2, 1, "read", 20, 80), 101);
  r.Span(3, 2, "elsewhere", 30, 40);
  r.Wait(101, 0, 30, 60, 60, WaitClass::kDiskRead, Cause::kDiskRead);
  r.Cpu(101, 60, 110);
  EXPECT_EQ(Print(r),
            "0-20 root on_cpu thread_id 0.9\n20-30 read on_cpu thread_id 0.9\n30-60 read disk_read thread_id 0\n"
            "60-80 read on_cpu thread_id 0.9\n80-100 root on_cpu thread_id 0.9\n");
}

// The other thread's span ends a moment before it lets the waiting one go on.
TEST(SpanJoin, AWaitForAnotherThreadsSpanGoesOnThere) {
  RecordingBuilder r;
  OnThread(r.Span(1, 0, "root", 0, 10'000), 101, RecordingBuilder::kPid);
  OnThread(r.Span(2, 1, "work", 1200, 7900), 102, RecordingBuilder::kPid);
  auto& wait = r.Wait(101, 0, 1000, 8000, 8000, WaitClass::kFutex, Cause::kLock);
  wait.waker.kind = model::WakerKind::kThread;
  wait.waker.pid = RecordingBuilder::kPid;
  wait.waker.tid = 102;
  r.Cpu(101, 8000, 11'000).Cpu(102, 1200, 8500);
  EXPECT_EQ(Print(r),
            "0-1000 root on_cpu thread_id 0.9\n1000-1200 root queue thread_id 0.5\n"
            "1200-7900 work on_cpu thread_id 0.9\n7900-10000 root on_cpu thread_id 0.9\n");
}

// On an event loop's thread several requests are open at once: the thread says nothing about whose work ran.
TEST(SpanJoin, SpansThatAreNotNestedAreNotJoined) {
  RecordingBuilder r;
  OnThread(r.Span(1, 0, "a", 0, 60), 101);
  OnThread(r.Span(2, 0, "b", 40, 100, 2), 101);
  r.Cpu(101, 0, 110);
  EXPECT_EQ(Print(r, 0), "0-40 a on_cpu thread_id 0.9\n40-60 a unexplained none 0\n");
  EXPECT_EQ(Print(r, 1), "0-20 b unexplained none 0\n20-60 b on_cpu thread_id 0.9\n");
}

TEST(SpanJoin, APublishedSpanCountsMoreThanTheAttribute) {
  RecordingBuilder r;
  OnThread(r.Span(1, 0, "root", 0, 100), 101);
  r.Change(50, 1, 0, 0, 101).Change(100, 0, 1, 0, 101).Cpu(101, 0, 110);
  EXPECT_EQ(Print(r), "0-50 root unexplained none 0\n50-100 root on_cpu thread_context 1\n");
}

// A managed thread's number, a thread of another process, an unknown process.
TEST(SpanJoin, AThreadIdThatIsNoThreadOfTheProcessIsNoJoin) {
  for (auto [thread_id, pid] : {std::pair<uint64_t, int32_t>{140'000'000'000'000, 100}, {7, 100}, {101, 200}}) {
    RecordingBuilder r;
    OnThread(r.Span(1, 0, "a", 0, 60), thread_id, pid);
    OnThread(r.Span(2, 0, "b", 0, 60, 2), thread_id, pid);
    r.Cpu(101, 0, 110);
    EXPECT_EQ(Print(r), "0-60 a unexplained none 0\n");
  }
}

TEST(SpanJoin, TheOnlyOpenRequestHasTheWorkingThread) {
  RecordingBuilder r;
  r.Span(1, 0, "a", 0, 60).Span(2, 1, "parse", 10, 20).Span(3, 1, "x", 30, 40).Span(4, 1, "y", 35, 45);
  r.Span(5, 0, "b", 50, 100, 2);
  r.Cpu(101, 0, 110);
  r.Wait(102, 0, 5, 110, 110, WaitClass::kPoll, Cause::kNetRecv);
  EXPECT_EQ(Print(r, 0),
            "0-10 a on_cpu only_open_span 0.6\n10-20 parse on_cpu only_open_span 0.6\n20-30 a on_cpu only_open_span "
            "0.6\n30-35 x on_cpu only_open_span 0.6\n35-40 a on_cpu only_open_span 0.6\n40-45 y on_cpu only_open_span "
            "0.6\n45-50 a on_cpu only_open_span 0.6\n50-60 a unexplained none 0\n");
  EXPECT_EQ(Print(r, 1), "0-10 b unexplained none 0\n10-50 b on_cpu only_open_span 0.6\n");
}

TEST(SpanJoin, WithoutAThreadThatDoesMostOfTheWorkThereIsNoJoin) {
  RecordingBuilder r;
  r.Span(1, 0, "a", 0, 60).Cpu(101, 0, 20).Cpu(102, 20, 40).Cpu(103, 40, 60);
  EXPECT_EQ(Print(r), "0-60 a unexplained none 0\n");
}

TEST(SpanJoin, APublishingProcessIsNotGuessedAt) {
  RecordingBuilder r;
  r.Span(1, 0, "a", 0, 60).Span(9, 0, "other", 200, 300, 2);
  r.Cpu(101, 0, 110).Cpu(100, 0, 300).Change(200, 9, 0, 0).Change(300, 0, 9, 0);
  EXPECT_EQ(Print(r), "0-60 a unexplained none 0\n");
}

// The span's own parent never came: it hangs under its root by time, whatever its thread says.
TEST(SpanJoin, AnAdoptedSpanIsJoinedByOverlap) {
  RecordingBuilder r;
  r.Span(1, 0, "root", 0, 100).Span(2, 77, "orphan", 20, 80).Span(3, 2, "below", 40, 60);
  r.Change(0, 1, 0, 0).Change(20, 2, 1, 0).Change(40, 3, 2, 0).Change(60, 2, 3, 0).Change(80, 1, 2, 0);
  r.Change(100, 0, 1, 0).Cpu(100, 0, 110);
  EXPECT_EQ(Print(r),
            "0-20 root on_cpu thread_context 1\n20-40 orphan on_cpu overlap 0.7\n40-60 below on_cpu overlap 0.7\n"
            "60-80 orphan on_cpu overlap 0.7\n80-100 root on_cpu thread_context 1\n");
}

// A followed peer's thread, which answered: joined by the connection that the span waits at.
TEST(SpanJoin, APeersThreadIsJoinedByTheConnection) {
  constexpr int32_t kPeer = 200;
  RecordingBuilder r;
  model::SocketAddress us{2, {10, 0, 0, 1}, 4000}, peer{2, {10, 0, 0, 2}, 8000};
  r.Span(1, 0, "root", 0, 100).Change(0, 1, 0, 0).Change(100, 0, 1, 0);
  r.batch.sockets.push_back({kPeer, 5, 0, 2, peer, us});
  auto& wait = r.Wait(100, 0, 10, 90, 90, WaitClass::kSocketRecv, Cause::kNetRecv);
  wait.target.kind = model::TargetKind::kSocket;
  wait.target.local = us;
  wait.target.remote = peer;
  wait.waker.kind = model::WakerKind::kThread;
  wait.waker.pid = kPeer;
  wait.waker.tid = 201;
  r.Cpu(100, 90, 110);
  r.Cpu(201, 50, 95);
  r.batch.intervals.back().pid = kPeer;
  EXPECT_EQ(Print(r),
            "0-10 root on_cpu thread_context 1\n10-50 root net_recv thread_context 0.95\n"
            "50-90 root on_cpu connection 0.9\n90-100 root on_cpu thread_context 1\n");
}

}  // namespace
}  // namespace tailspan::analyze
