#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <unordered_set>

#include "model/cause.h"
#include "model/explanation.h"
#include "model/ids.h"
#include "model/ledger.h"
#include "model/loop.h"
#include "model/span.h"

namespace tailspan::model {
namespace {

TEST(Cause, NamesAreTheContract) {
  EXPECT_EQ(CauseName(Cause::kGil), "gil");
  EXPECT_EQ(CauseByName("cpu_throttled"), Cause::kCpuThrottled);
  EXPECT_FALSE(CauseByName("slow"));
  EXPECT_EQ(static_cast<int>(Cause::kCount), 26);
  EXPECT_TRUE(IsContention(Cause::kEventLoop));
  EXPECT_FALSE(IsContention(Cause::kRetransmit));
}

TEST(Ids, TextBothWays) {
  auto id = TraceIdFromText("0193a1b2-0000-7000-8000-00000000002a");
  ASSERT_TRUE(id);
  EXPECT_EQ(ToHex(*id), "0193a1b200007000800000000000002a");
  EXPECT_EQ(ToUuidText(*id), "0193a1b2-0000-7000-8000-00000000002a");
  EXPECT_EQ(SpanIdOfRun(*id), 0x800000000000002aull);
  EXPECT_EQ(TraceIdFromBytes(ToBytes(*id).data()), *id);
  EXPECT_FALSE(TraceIdFromText("0193a1b20000-7000-8000-00000000002a00"));
  EXPECT_FALSE(SpanIdFromText("zz00000000000000"));
}

// Clients choose their ids; none may make a table of them slow.
TEST(Ids, ChosenIdsDoNotFallIntoOneBucket) {
  constexpr size_t kIds = 10'000;
  for (const int kind : {0, 1, 2}) {
    std::unordered_set<TraceId, IdHash> ids;
    ids.reserve(kIds);
    const size_t buckets = ids.bucket_count();
    for (uint64_t i = 1; i <= kIds; ++i) {
      const uint64_t number = i * buckets;
      ids.insert(kind == 0 ? TraceId{7, number} : kind == 1 ? TraceId{number, 7} : TraceId{number, number});
    }
    ASSERT_EQ(ids.bucket_count(), buckets);
    size_t most = 0;
    for (size_t bucket = 0; bucket < buckets; ++bucket) most = std::max(most, ids.bucket_size(bucket));
    EXPECT_LT(most, 30u) << kind;
  }
}

TEST(SocketAddress, Text) {
  SocketAddress a{AF_INET, {10, 0, 0, 2}, 8000};
  EXPECT_EQ(ToText(a), "10.0.0.2:8000");
}

TEST(Blame, TextSaysTheKindOnce) {
  const auto text = [](BlameKind kind, const char* name) {
    Blame blame;
    blame.kind = kind;
    blame.name = name;
    return BlameText(blame);
  };
  EXPECT_EQ(text(BlameKind::kThread, "thread pool"), "thread pool");
  EXPECT_EQ(text(BlameKind::kThread, "worker"), "thread worker");
  EXPECT_EQ(text(BlameKind::kPeer, "unknown peer"), "unknown peer");
  EXPECT_EQ(text(BlameKind::kPeer, "10.0.0.2:8000"), "peer 10.0.0.2:8000");
  EXPECT_EQ(text(BlameKind::kFile, "profile"), "file profile");
}

TEST(Ledger, LawFindsGapOverlapAndEnd) {
  TraceLedger ledger;
  ledger.duration_ns = 10;
  ledger.paths = {{"root"}};
  ledger.pieces.resize(2);
  ledger.pieces[0].end_ns = 4;
  ledger.pieces[1].start_ns = 4;
  ledger.pieces[1].end_ns = 10;
  EXPECT_EQ(CheckLaw(ledger), "");
  ledger.pieces[1].start_ns = 5;
  EXPECT_NE(CheckLaw(ledger), "");
  ledger.pieces[1].start_ns = 4;
  ledger.duration_ns = 11;
  EXPECT_NE(CheckLaw(ledger), "");
}

}  // namespace
}  // namespace tailspan::model
