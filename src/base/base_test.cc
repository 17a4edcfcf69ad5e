#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "base/loss.h"
#include "base/result.h"
#include "base/text.h"

namespace tailspan::base {
namespace {

TEST(Result, CarriesValueOrError) {
  Result<int> good = 7;
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  Result<int> bad = Error{Code::kNotFound, "no file"};
  ASSERT_FALSE(bad.ok());
  Error with = std::move(bad).error().WithContext("open");
  EXPECT_EQ(with.message, "open: no file");
}

TEST(Result, MapsErrno) {
  EXPECT_EQ(OsError(EACCES, "x").code, Code::kPermission);
  EXPECT_EQ(OsError(ENOSPC, "x").code, Code::kResourceExhausted);
}

TEST(ClockMap, InterpolatesAndInverts) {
  ClockMap map({{1000, 5000, 2}, {2000, 6010, 3}});
  EXPECT_EQ(map.UnixFromMono(1000), 5000);
  EXPECT_EQ(map.UnixFromMono(1500), 5505);  // the offset grows from 4000 to 4010: 4005 in the middle
  EXPECT_EQ(map.UnixFromMono(500), 4500);
  EXPECT_EQ(map.UnixFromMono(3000), 7010);
  EXPECT_NEAR(static_cast<double>(map.MonoFromUnix(map.UnixFromMono(1234))), 1234, 1);
  EXPECT_EQ(map.error_ns(), 3);
}

TEST(Loss, CatalogueIsNamedOnce) {
  for (int i = 0; i < static_cast<int>(Loss::kCount); ++i) {
    auto loss = static_cast<Loss>(i);
    EXPECT_EQ(LossByName(Describe(loss).name), loss) << Describe(loss).name;
    EXPECT_GT(std::string(Describe(loss).remedy).size(), 5u);
  }
  LossCounters counters;
  counters.Add(Loss::kSpanRejected, 3);
  EXPECT_EQ(counters.NonZero().at("span_rejected"), 3u);
}

TEST(Text, SharesAndNamesForPeople) {
  EXPECT_EQ(PercentText(0.614), "61 %");
  EXPECT_EQ(PercentText(-0.004), "0 %");
  EXPECT_EQ(PercentText(-0.25), "-25 %");
  EXPECT_EQ(CleanText("gr\xc3\xb6\xc3\x9f"
                      "e"),
            "gr\xc3\xb6\xc3\x9f"
            "e");
  EXPECT_EQ(CleanText("a\x1b[2J\nb\xc2\x9b"
                      "c\xff\x7f"),
            "a [2J b c\xef\xbf\xbd ");
}

TEST(JsonWriter, EscapesAndReplacesBadUtf8) {
  JsonWriter json;
  json.BeginObject()
      .Key("a\"b")
      .String("x\xff\n")
      .Key("n")
      .BeginArray()
      .Int(-1)
      .Double(0.5)
      .Bool(true)
      .Null()
      .EndArray();
  json.EndObject();
  EXPECT_EQ(json.text(), "{\"a\\\"b\":\"x\xEF\xBF\xBD\\n\",\"n\":[-1,0.5,true,null]}");
  bool replaced = false;
  EXPECT_EQ(ToUtf8("\xed\xa0\x80", &replaced).size(), 9u);  // a surrogate is three bad bytes
  EXPECT_TRUE(replaced);
}

}  // namespace
}  // namespace tailspan::base
