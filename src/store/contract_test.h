// What every store does. A store's own test includes this and instantiates StoreContract with a way to make and to open
// one; what it promises beyond the port it tests itself.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "store/random_rows.h"
#include "store/store.h"

namespace tailspan::store::testing {

struct StoreKind {
  std::string name;
  std::function<base::Result<std::unique_ptr<Store>>(const std::string& path)> create;
  std::function<base::Result<std::unique_ptr<Store>>(const std::string& path)> open;  // one that was closed
};

class StoreContract : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "store_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    auto made = GetParam().create(path());
    ASSERT_TRUE(made.ok()) << made.error().message;
    store_ = std::move(*made);
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return folder_ + "/store"; }

  void Reopen() {
    store_.reset();
    auto opened = GetParam().open(path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    store_ = std::move(*opened);
  }
  model::RecordBatch Read(const TimeWindow& window = {}) {
    auto batch = store_->ReadBatch(window);
    EXPECT_TRUE(batch.ok()) << (batch.ok() ? "" : batch.error().message);
    return batch.ok() ? std::move(*batch) : model::RecordBatch{};
  }
  std::vector<model::TraceLedger> Ledgers(const std::string& operation = "", const TimeWindow& window = {}) {
    auto ledgers = store_->ReadLedgers(operation, window);
    EXPECT_TRUE(ledgers.ok()) << (ledgers.ok() ? "" : ledgers.error().message);
    return ledgers.ok() ? std::move(*ledgers) : std::vector<model::TraceLedger>{};
  }

  std::string folder_;
  std::unique_ptr<Store> store_;
  const model::HostKey host_{"node-1", "5f0c6e0e-9f5b-4a53-8a55-0e7a7e5ad001"};
};

#define ASSERT_DONE(expression)                       \
  do {                                                \
    ::tailspan::base::Status done_ = (expression);    \
    ASSERT_TRUE(done_.ok()) << done_.error().message; \
  } while (false)

TEST_P(StoreContract, AnEmptyStoreReadsAsEmpty) {
  EXPECT_EQ(Difference(Read(), model::RecordBatch{}), "");
  EXPECT_TRUE(Ledgers().empty());
  EXPECT_EQ(store_->ReadInfo().error().code, base::Code::kNotFound);
}

TEST_P(StoreContract, EmptyBatchesAreNoError) {
  ASSERT_DONE(store_->Append({}));
  ASSERT_DONE(store_->Flush());
  model::RecordBatch batch;
  batch.host = host_;
  ASSERT_DONE(store_->Append(batch));
  ASSERT_DONE(store_->PutLedgers({}));
  ASSERT_DONE(store_->Flush());
  Reopen();
  EXPECT_EQ(Difference(Read(), batch), "");
}

TEST_P(StoreContract, EveryMemberOfEveryRowComesBack) {
  RandomRows random(1);
  model::RecordBatch all;
  all.host = host_;
  for (size_t rows : {1u, 0u, 700u, 5000u, 3u}) {  // within, up to and beyond a store's own chunks
    model::RecordBatch batch = RandomBatch(&random, host_, rows);
    ASSERT_DONE(store_->Append(batch));
    if (rows != 700) ASSERT_DONE(store_->Flush());
    auto fields = boost::pfr::structure_tie(batch);
    boost::pfr::for_each_field(all, [&](auto& field, auto position) {
      if constexpr (IsVector<std::decay_t<decltype(field)>>::value) {
        auto& more = std::get<position.value>(fields);
        field.insert(field.end(), more.begin(), more.end());
      }
    });
  }
  ASSERT_DONE(store_->Flush());
  EXPECT_EQ(Difference(Read(), all), "");
  Reopen();
  EXPECT_EQ(Difference(Read(), all), "");
}

TEST_P(StoreContract, ARepeatedSpanIsReadOnceInItsNewestVersion) {
  RandomRows random(2);
  model::RecordBatch batch;
  batch.host = host_;
  batch.spans = {random.Make<model::Span>(), random.Make<model::Span>(), random.Make<model::Span>()};
  for (auto& span : batch.spans) span.trace_id = {1, 2}, span.span_id = 3, span.uuid = {};
  batch.spans[1].span_id = 4;
  batch.spans[2].uuid = {5, 6};
  ASSERT_DONE(store_->Append(batch));
  ASSERT_DONE(store_->Flush());
  model::RecordBatch again;
  again.host = host_;
  again.spans = {batch.spans[0]};
  again.spans[0].complete = !again.spans[0].complete;
  again.spans[0].attributes = {{"new", "1"}};
  ASSERT_DONE(store_->Append(again));
  ASSERT_DONE(store_->Flush());
  batch.spans[0] = again.spans[0];
  EXPECT_EQ(Difference(Read(), batch), "");
}

TEST_P(StoreContract, AnOpenSpanHasNoEndUntilItsLastVersion) {
  model::RecordBatch batch;
  batch.host = host_;
  batch.spans.resize(2);
  for (auto& span : batch.spans) {
    span.trace_id = {1, 2}, span.source = "langsmith", span.start_unix_ns = 1'000;
    span.complete = false, span.end_unix_ns = 0;
  }
  batch.spans[0].span_id = 3, batch.spans[0].uuid = {9, 3};
  batch.spans[1].span_id = 4, batch.spans[1].uuid = {9, 4};
  ASSERT_DONE(store_->Append(batch));
  ASSERT_DONE(store_->Flush());
  Reopen();
  EXPECT_EQ(Difference(Read(), batch), "");
  batch.spans[1].complete = true, batch.spans[1].end_unix_ns = 5'000;
  model::RecordBatch last;
  last.host = host_;
  last.spans = {batch.spans[1]};
  ASSERT_DONE(store_->Append(last));
  ASSERT_DONE(store_->Flush());
  Reopen();
  EXPECT_EQ(Difference(Read(), batch), "");
}

TEST_P(StoreContract, TheNewestStateOfAProcessWins) {
  model::RecordBatch batch;
  batch.host = host_;
  batch.processes.resize(2);
  batch.processes[0].key = {10, 1000};
  batch.processes[1].key = {10, 900'000'000};  // the same pid, another process
  ASSERT_DONE(store_->Append(batch));
  batch.processes.resize(1);
  batch.processes[0].end_mono_ns = 500;
  ASSERT_DONE(store_->Append(batch));
  ASSERT_DONE(store_->Flush());
  auto read = Read();
  ASSERT_EQ(read.processes.size(), 2u);
  EXPECT_EQ(read.processes[0].end_mono_ns, 500);
  EXPECT_EQ(read.processes[1].end_mono_ns, 0);
}

TEST_P(StoreContract, AWindowCutsSpansByStartAndKernelRecordsByOverlap) {
  model::RecordBatch batch;
  batch.host = host_;
  batch.clock_pairs = {{1'000, 501'000, 1}, {9'000, 509'000, 1}};  // Unix time is 500,000 ahead
  for (int64_t start : {2'000, 4'000, 6'000}) {
    auto id = static_cast<uint64_t>(start);
    model::Span span;
    span.trace_id = {id, 1}, span.span_id = id;
    span.start_unix_ns = 500'000 + start, span.end_unix_ns = span.start_unix_ns + 2'000;
    batch.spans.push_back(span);
    model::ThreadInterval interval;
    interval.sequence = id, interval.window_start_mono_ns = start, interval.wait_end_mono_ns = start + 1'500;
    batch.intervals.push_back(interval);
    model::LoopStep step;
    step.step_id = id, step.ready_mono_ns = start, step.end_mono_ns = start + 1'500;
    batch.steps.push_back(step);
    model::SpanChange change;
    change.pid = change.tid = 7, change.at_mono_ns = start, change.span_id = id;
    batch.span_changes.push_back(change);
  }
  batch.sites.resize(1);
  ASSERT_DONE(store_->Append(batch));
  ASSERT_DONE(store_->Flush());
  auto read = Read({505'000, 506'000});
  EXPECT_TRUE(read.spans.empty());
  ASSERT_EQ(read.intervals.size(), 1u);  // [4000, 5500) reaches into the window, 6000 is its end
  EXPECT_EQ(read.intervals[0].sequence, 4'000u);
  ASSERT_EQ(read.steps.size(), 1u);
  EXPECT_EQ(read.steps[0].step_id, 4'000u);
  ASSERT_EQ(read.span_changes.size(), 1u);  // the span that the thread had when the window began
  EXPECT_EQ(read.span_changes[0].span_id, 4'000u);
  EXPECT_EQ(read.clock_pairs.size(), 2u);
  EXPECT_EQ(read.sites.size(), 1u);
  read = Read({504'000, INT64_MAX});
  ASSERT_EQ(read.spans.size(), 2u);
  EXPECT_EQ(read.spans[0].span_id, 4'000u);
  EXPECT_EQ(read.intervals.size(), 2u);
  EXPECT_EQ(Read({INT64_MIN, 504'000}).spans.size(), 1u);
}

TEST_P(StoreContract, InfoComesBackAndIsReplaced) {
  RandomRows random(3);
  for (int round = 0; round < 3; ++round) {
    auto info = random.Make<model::RecordingInfo>(6);
    info.host = host_;
    ASSERT_DONE(store_->PutInfo(info));
    auto read = store_->ReadInfo();
    ASSERT_TRUE(read.ok()) << read.error().message;
    info.schema_version = read->schema_version;
    EXPECT_EQ(Difference(*read, info), "");
  }
}

TEST_P(StoreContract, AnotherHostIsRefused) {
  model::RecordBatch batch;
  batch.host = host_;
  ASSERT_DONE(store_->Append(batch));
  batch.host.boot = "another";
  EXPECT_EQ(store_->Append(batch).error().code, base::Code::kInvalidArgument);
}

TEST_P(StoreContract, LedgersComeBackByStartAndAreReplaced) {
  RandomRows random(4);
  std::vector<model::TraceLedger> ledgers;
  for (size_t i = 0; i < 300; ++i) {
    ledgers.push_back(RandomLedger(&random, random.Below(40)));
    ledgers.back().start_unix_ns = 1'000 + static_cast<int64_t>(i);
    ledgers.back().trace_id.lo = i + 1;
    ledgers.back().operation = i % 3 == 0 ? "POST /ask" : "it's \"other\"";
  }
  ASSERT_DONE(store_->PutLedgers({ledgers.rbegin(), ledgers.rend()}));
  EXPECT_EQ(Difference(Ledgers(), ledgers), "");

  for (size_t i : {7u, 8u, 290u}) {
    auto id = ledgers[i].trace_id;
    auto root = ledgers[i].root_id;
    ledgers[i] = RandomLedger(&random, 10);
    ledgers[i].trace_id = id, ledgers[i].root_id = root;
    ledgers[i].start_unix_ns = 1'000 + static_cast<int64_t>(i);
    ledgers[i].operation = "POST /ask";
  }
  ASSERT_DONE(store_->PutLedgers({ledgers[7], ledgers[8], ledgers[290]}));
  Reopen();
  EXPECT_EQ(Difference(Ledgers(), ledgers), "");

  std::vector<model::TraceLedger> some;
  for (const auto& ledger : ledgers) {
    if (ledger.operation == "POST /ask" && ledger.start_unix_ns >= 1'100 && ledger.start_unix_ns < 1'200) {
      some.push_back(ledger);
    }
  }
  EXPECT_EQ(Difference(Ledgers("POST /ask", {1'100, 1'200}), some), "");
  EXPECT_TRUE(Ledgers("no such operation").empty());

  ASSERT_DONE(store_->PutLedgers(ledgers));  // all of them
  EXPECT_EQ(Difference(Ledgers(), ledgers), "");
}

}  // namespace tailspan::store::testing
