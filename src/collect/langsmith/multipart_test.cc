#include "collect/langsmith/multipart.h"

#include <gtest/gtest.h>

namespace tailspan::collect::langsmith {
namespace {

constexpr size_t kMany = 1000;

TEST(Boundary, IsFoundAmongParameters) {
  EXPECT_EQ(BoundaryOf("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(BoundaryOf("multipart/form-data; charset=x; Boundary=\"a;b c\""), "a;b c");
  EXPECT_EQ(BoundaryOf("multipart/form-data"), "");
  EXPECT_EQ(BoundaryOf("multipart/form-data; boundary=" + std::string(300, 'x')), "");
}

TEST(SplitMultipart, ReadsPartsOfBothClients) {
  std::string body =
      "--B\r\nContent-Disposition: form-data; name=\"post.1\"\r\nContent-Type: application/json\r\n"
      "Content-Length: 7\r\n\r\n{\"a\":1}\r\n"
      "--B\r\ncontent-disposition: form-data; name=\"post.1.inputs\"; filename=\"blob\"\r\n"
      "content-type: application/json; length=2\r\n\r\n{}\r\n--B--\r\n";
  Multipart got = SplitMultipart(body, "B", kMany);
  ASSERT_TRUE(got.whole) << got.problem;
  ASSERT_EQ(got.parts.size(), 2u);
  EXPECT_EQ(got.parts[0].name, "post.1");
  EXPECT_EQ(got.parts[0].data, "{\"a\":1}");
  EXPECT_EQ(got.parts[1].name, "post.1.inputs");
  EXPECT_EQ(got.parts[1].data, "{}");
}

TEST(SplitMultipart, BelievesALengthOnlyWithADelimiterBehindIt) {
  // The data holds the delimiter itself: the declared length tells.
  std::string data = "x\r\n--B\r\ny";
  std::string head = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\nContent-Length: ";
  // Parts point into their body, which must live as long.
  std::string body = head + std::to_string(data.size()) + "\r\n\r\n" + data + "\r\n--B--";
  Multipart right = SplitMultipart(body, "B", kMany);
  ASSERT_TRUE(right.whole);
  ASSERT_EQ(right.parts.size(), 1u);
  EXPECT_EQ(right.parts[0].data, data);
  for (const char* wrong : {"3", "999999999", "-5", "18446744073709551615", "x"}) {
    body = head + wrong + "\r\n\r\nhello\r\n--B--";
    Multipart got = SplitMultipart(body, "B", kMany);
    ASSERT_TRUE(got.whole) << wrong;
    EXPECT_EQ(got.parts[0].data, "hello") << wrong;
  }
}

TEST(SplitMultipart, AllowsAPreambleAndEmptyParts) {
  Multipart got = SplitMultipart("hello\r\n--B\r\n\r\n\r\n--B--\r\nend", "B", kMany);
  ASSERT_TRUE(got.whole) << got.problem;
  ASSERT_EQ(got.parts.size(), 1u);
  EXPECT_EQ(got.parts[0].name, "");
  EXPECT_EQ(got.parts[0].data, "");
}

TEST(SplitMultipart, ACutKeepsTheWholeParts) {
  std::string part = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ndata\r\n";
  std::string body = part + part + "--B--";
  for (size_t size = 0; size + 1 < body.size(); ++size) {
    Multipart got = SplitMultipart(body.substr(0, size), "B", kMany);
    EXPECT_FALSE(got.whole) << size;
    EXPECT_FALSE(got.problem.empty());
    // A part is whole once the delimiter behind it is there.
    size_t delimiter = std::string("\r\n--B").size();
    size_t expected = size >= 2 * part.size() - 2 + delimiter ? 2u : size >= part.size() - 2 + delimiter ? 1u : 0u;
    EXPECT_EQ(got.parts.size(), expected) << size;
  }
}

TEST(SplitMultipart, TooManyPartsAreNotWhole) {
  std::string body;
  for (int i = 0; i < 5; ++i) body += "\r\n--B\r\n\r\nx";
  Multipart got = SplitMultipart(body + "\r\n--B--", "B", 3);
  EXPECT_FALSE(got.whole);
  EXPECT_EQ(got.parts.size(), 3u);
}

}  // namespace
}  // namespace tailspan::collect::langsmith
