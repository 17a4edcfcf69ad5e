#include "model/ids.h"

#include <fmt/format.h>

#include <random>

namespace tailspan::model {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<uint64_t> ParseHex64(std::string_view digits) {
  uint64_t value = 0;
  for (char c : digits) {
    int d = HexDigit(c);
    if (d < 0) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(d);
  }
  return value;
}

uint64_t LoadBigEndian(const uint8_t* bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

std::string ToHex(TraceId id) { return fmt::format("{:016x}{:016x}", id.hi, id.lo); }
std::string ToHex(SpanId id) { return fmt::format("{:016x}", id); }

std::string ToUuidText(Uuid id) {
  std::string hex = ToHex(id);
  return hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" + hex.substr(16, 4) + "-" +
         hex.substr(20);
}

std::optional<TraceId> TraceIdFromText(std::string_view text) {
  std::string digits;
  if (text.size() == 36) {
    for (size_t i = 0; i < 36; ++i) {
      bool dash = i == 8 || i == 13 || i == 18 || i == 23;
      if (dash != (text[i] == '-')) return std::nullopt;
      if (!dash) digits += text[i];
    }
    text = digits;
  }
  if (text.size() != 32) return std::nullopt;
  auto hi = ParseHex64(text.substr(0, 16));
  auto lo = ParseHex64(text.substr(16));
  if (!hi || !lo) return std::nullopt;
  return TraceId{*hi, *lo};
}

std::optional<SpanId> SpanIdFromText(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  return ParseHex64(text);
}

TraceId TraceIdFromBytes(const uint8_t bytes[16]) { return {LoadBigEndian(bytes), LoadBigEndian(bytes + 8)}; }
SpanId SpanIdFromBytes(const uint8_t bytes[8]) { return LoadBigEndian(bytes); }

std::array<uint8_t, 16> ToBytes(TraceId id) {
  std::array<uint8_t, 16> out;
  for (int i = 0; i < 8; ++i) {
    out[static_cast<size_t>(i)] = static_cast<uint8_t>(id.hi >> (56 - 8 * i));
    out[static_cast<size_t>(8 + i)] = static_cast<uint8_t>(id.lo >> (56 - 8 * i));
  }
  return out;
}

size_t ForeignNumberHash::operator()(uint64_t number) const {
  static const uint64_t seed = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  number ^= seed;  // then a mix in which each bit of the number moves each bit of the hash
  number = (number ^ number >> 32) * 0x9E3779B97F4A7C15ull;
  number = (number ^ number >> 29) * 0xBF58476D1CE4E5B9ull;
  return number ^ number >> 32;
}

}  // namespace tailspan::model
