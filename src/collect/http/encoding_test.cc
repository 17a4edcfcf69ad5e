#include "collect/http/encoding.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <chrono>

namespace tailspan::collect::http {
namespace {

using base::Code;

std::string Deflate(const std::string& text, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, window_bits, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string Sample() {
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += std::to_string(i * 7919 % 10007) + ",";
  return text;
}

TEST(Encoding, UndoesEachCoding) {
  std::string text = Sample();
  EXPECT_EQ(*Decode("", text, text.size()), text);
  EXPECT_EQ(*Decode("identity", text, text.size()), text);
  EXPECT_EQ(*Decode("GZIP", Deflate(text, 15 + 16), text.size()), text);
  EXPECT_EQ(*Decode("deflate", Deflate(text, 15), text.size()), text);
  EXPECT_EQ(*Decode("deflate", Deflate(text, -15), text.size()), text);
  EXPECT_EQ(*Decode("zstd", Zstd(text), text.size()), text);
  EXPECT_EQ(*Decode("gzip, zstd", Zstd(Deflate(text, 15 + 16)), text.size()), text);
}

TEST(Encoding, JoinsFramesAndMembers) {
  EXPECT_EQ(*Decode("zstd", Zstd("ab") + Zstd("cd"), 100), "abcd");
  EXPECT_EQ(*Decode("gzip", Deflate("ab", 31) + Deflate("cd", 31), 100), "abcd");
}

TEST(Encoding, ABombStopsAtTheLimit) {
  std::string zeros(64u << 20, '\0');
  for (auto [coding, body] : {std::pair<const char*, std::string>{"gzip", Deflate(zeros, 31)}, {"zstd", Zstd(zeros)}}) {
    ASSERT_LT(body.size(), 200'000u);
    auto result = Decode(coding, body, 1u << 20);
    ASSERT_FALSE(result.ok()) << coding;
    EXPECT_EQ(result.error().code, Code::kResourceExhausted) << coding;
  }
  EXPECT_FALSE(Decode("", "abc", 2).ok());
}

TEST(Encoding, FramesThatHoldNothingCostNothing) {
  // Each took as long as clearing 4 MiB: this body half a minute, one of the largest size an hour.
  std::string text(4u << 20, 'x');
  std::string gzip = Deflate(text, 31), zstd = Zstd(text);
  const std::string empty_gzip = Deflate("", 31), empty_zstd = Zstd("");
  for (int i = 0; i < 100'000; ++i) {
    gzip += empty_gzip;
    zstd += empty_zstd;
  }
  auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(*Decode("gzip", gzip, 8u << 20), text);
  EXPECT_EQ(*Decode("zstd", zstd, 8u << 20), text);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST(Encoding, EveryCutIsAnError) {
  std::string text = Sample().substr(0, 2000);
  for (auto [coding, body] : {std::pair<const char*, std::string>{"gzip", Deflate(text, 31)}, {"zstd", Zstd(text)}}) {
    for (size_t size = 0; size < body.size(); ++size) {
      auto result = Decode(coding, body.substr(0, size), 1u << 20);
      ASSERT_FALSE(result.ok()) << coding << " " << size;
      EXPECT_EQ(result.error().code, Code::kInvalidArgument);
    }
  }
}

TEST(Encoding, AnUnknownCodingIsUnsupported) {
  EXPECT_EQ(Decode("br", "x", 10).error().code, Code::kUnsupported);
  EXPECT_EQ(Decode("identity,identity,identity,identity,identity", "x", 10).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace tailspan::collect::http
