#include "collect/http/encoding.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

namespace tailspan::collect::http {
namespace {

using base::Code;
using base::Error;
using base::Result;

constexpr size_t kBlockBytes = 64u << 10;
constexpr int kCodingsMax = 4;

Error TooLarge(size_t bytes_max) {
  return {Code::kResourceExhausted, "the body is over the limit of " + std::to_string(bytes_max) + " bytes unpacked"};
}

// What has been unpacked so far. Room is made only when there is none left: a body may be millions of frames that hold
// nothing, and each must cost no more than its own bytes.
class Output {
 public:
  explicit Output(size_t bytes_max) : bytes_max_(bytes_max) {}
  char* room() { return text_.data() + used_; }
  // How many bytes may be written there; one over the limit at most.
  size_t MakeRoom() {
    if (used_ == text_.size()) {
      size_t block = std::max(kBlockBytes, std::min(used_, size_t{4} << 20));
      text_.resize(used_ + std::min(block, bytes_max_ + 1 - used_));
    }
    return text_.size() - used_;
  }
  void Written(size_t bytes) { used_ += bytes; }
  bool IsTooLarge() const { return used_ > bytes_max_; }
  std::string Take() {
    text_.resize(used_);
    return std::move(text_);
  }

 private:
  size_t bytes_max_;
  size_t used_ = 0;
  std::string text_;
};

// windowBits of zlib: +32 tells gzip and zlib apart by their header, negative is a raw deflate stream.
Result<std::string> InflateWith(int window_bits, const std::string& body, size_t bytes_max) {
  z_stream stream{};
  if (inflateInit2(&stream, window_bits) != Z_OK) return Error{Code::kInternal, "cannot start zlib"};
  std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uInt>(body.size());
  Output out(bytes_max);
  while (true) {
    size_t room = out.MakeRoom();
    stream.next_out = reinterpret_cast<Bytef*>(out.room());
    stream.avail_out = static_cast<uInt>(room);
    int rc = inflate(&stream, Z_NO_FLUSH);
    out.Written(room - stream.avail_out);
    if (out.IsTooLarge()) return TooLarge(bytes_max);
    if (rc == Z_STREAM_END) {
      if (stream.avail_in == 0) return out.Take();
      // gzip allows several members one after another.
      if (inflateReset(&stream) != Z_OK) return Error{Code::kInternal, "cannot restart zlib"};
      continue;
    }
    if (rc != Z_OK || (stream.avail_in == 0 && stream.avail_out != 0)) {
      return Error{Code::kInvalidArgument, "the compressed body is damaged or cut short"};
    }
  }
}

Result<std::string> Unzstd(const std::string& body, size_t bytes_max) {
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, 27);  // 128 MiB: what zstd itself allows unasked
  ZSTD_inBuffer in{body.data(), body.size(), 0};
  Output out(bytes_max);
  size_t left = 1;
  while (in.pos < in.size || left != 0) {
    size_t room = out.MakeRoom();
    ZSTD_outBuffer to{out.room(), room, 0};
    size_t before = in.pos;
    left = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(left)) return Error{Code::kInvalidArgument, "the zstd body is damaged"};
    out.Written(to.pos);
    if (out.IsTooLarge()) return TooLarge(bytes_max);
    if (in.pos == before && to.pos == 0 && left != 0) {
      return Error{Code::kInvalidArgument, "the zstd body is cut short"};
    }
  }
  return out.Take();
}

std::string LowerTrimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

Result<std::string> DecodeOne(const std::string& coding, std::string body, size_t bytes_max) {
  if (coding.empty() || coding == "identity") {
    if (body.size() > bytes_max) return TooLarge(bytes_max);
    return body;
  }
  if (coding == "gzip" || coding == "x-gzip") return InflateWith(15 + 32, body, bytes_max);
  if (coding == "deflate") {
    auto wrapped = InflateWith(15 + 32, body, bytes_max);  // zlib as the standard says; some clients send it raw
    if (wrapped.ok() || wrapped.error().code == Code::kResourceExhausted) return wrapped;
    return InflateWith(-15, body, bytes_max);
  }
  if (coding == "zstd") return Unzstd(body, bytes_max);
  return Error{Code::kUnsupported, "Content-Encoding " + coding + " is not known; send gzip, deflate or zstd"};
}

}  // namespace

Result<std::string> Decode(std::string_view coding, std::string body, size_t bytes_max) {
  for (int i = 0; i < kCodingsMax; ++i) {
    size_t comma = coding.rfind(',');
    std::string_view last = comma == std::string_view::npos ? coding : coding.substr(comma + 1);
    auto decoded = DecodeOne(LowerTrimmed(last), std::move(body), bytes_max);
    if (!decoded.ok() || comma == std::string_view::npos) return decoded;
    body = std::move(*decoded);
    coding = coding.substr(0, comma);
  }
  return Error{Code::kUnsupported, "too many Content-Encodings"};
}

}  // namespace tailspan::collect::http
