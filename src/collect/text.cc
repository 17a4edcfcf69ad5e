#include "collect/text.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <charconv>

#include "base/json_writer.h"

namespace tailspan::collect {
namespace {

constexpr size_t kHashBytes = 8;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  if (c == '/' || c == '_') return 63;
  return -1;
}

bool IsAscii(std::string_view text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  if (IsAscii(text)) return true;
  bool replaced = false;
  base::ToUtf8(text, &replaced);
  return !replaced;
}

std::string Clean(std::string text, size_t bytes_max, base::LossCounters& loss) {
  if (!IsAscii(text)) {
    bool replaced = false;
    text = base::ToUtf8(text, &replaced);
    if (replaced) loss.Add(base::Loss::kTextNotUtf8);
  }
  if (text.size() > bytes_max) {
    size_t end = bytes_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text.resize(end);
    loss.Add(base::Loss::kAttributeCut);
  }
  return text;
}

std::string ShortHash(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) != 1) return "";
  std::string out;
  for (size_t i = 0; i < kHashBytes; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

bool ParseInt(std::string_view text, int64_t* value) {
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return ec == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool DecodeHex(std::string_view text, std::string* bytes) {
  if (text.size() % 2 != 0) return false;
  bytes->clear();
  for (size_t i = 0; i < text.size(); i += 2) {
    int high = HexDigit(text[i]);
    int low = HexDigit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes->push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

bool DecodeBase64(std::string_view text, std::string* bytes) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.size() % 4 == 1) return false;
  bytes->clear();
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    int digit = Base64Digit(c);
    if (digit < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes->push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return true;
}

}  // namespace tailspan::collect
