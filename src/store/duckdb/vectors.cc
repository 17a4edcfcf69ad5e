#include "store/duckdb/vectors.h"

#include <arpa/inet.h>

#include <algorithm>

namespace tailspan::store::duckdb {
namespace {

constexpr size_t kInlineTextBytes = sizeof duckdb_string_t{}.value.inlined.inlined;

bool IsAscii(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080ull) return false;
  }
  for (; i < text.size(); ++i) {
    if (text[i] & 0x80) return false;
  }
  return true;
}

// Bytes of the well-formed character at `text[at]`, 0 when there is none (RFC 3629, table 3-7 of Unicode).
size_t Utf8CharBytes(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0u; };
  auto is_tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4 || !is_tail(1)) return 0;
  if (first < 0xE0) return 2;
  if (first < 0xF0) {
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
    return is_tail(2) ? 3 : 0;
  }
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return is_tail(2) && is_tail(3) ? 4 : 0;
}

// Makes room for `count` more elements and gives row its place; returns the first one's position in the child.
idx_t GrowList(duckdb_vector vector, size_t row, size_t count) {
  idx_t first = duckdb_list_vector_get_size(vector);
  static_cast<duckdb_list_entry*>(duckdb_vector_get_data(vector))[row] = {first, count};
  if (count == 0) return first;
  duckdb_list_vector_reserve(vector, first + count);
  duckdb_list_vector_set_size(vector, first + count);
  return first;
}

duckdb_list_entry EntryAt(duckdb_vector vector, size_t row) {
  return static_cast<duckdb_list_entry*>(duckdb_vector_get_data(vector))[row];
}

template <typename Pairs>
void WriteMapOf(duckdb_vector vector, size_t row, const Pairs& pairs, TextCleaner& cleaner) {
  idx_t at = GrowList(vector, row, pairs.size());
  if (pairs.empty()) return;
  duckdb_vector entries = duckdb_list_vector_get_child(vector);
  duckdb_vector keys = duckdb_struct_vector_get_child(entries, 0);
  duckdb_vector values = duckdb_struct_vector_get_child(entries, 1);
  for (const auto& [key, value] : pairs) {
    WriteText(keys, at, key, cleaner);
    WriteText(values, at, value, cleaner);
    ++at;
  }
}

template <typename Add>
void ReadMapWith(duckdb_vector vector, size_t row, Add add) {
  duckdb_list_entry entry = EntryAt(vector, row);
  if (entry.length == 0) return;
  duckdb_vector entries = duckdb_list_vector_get_child(vector);
  auto* keys = static_cast<duckdb_string_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(entries, 0)));
  auto* values = static_cast<duckdb_string_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(entries, 1)));
  for (idx_t i = entry.offset; i < entry.offset + entry.length; ++i) add(TextAt(keys, i), TextAt(values, i));
}

char* PutDecimal(char* out, unsigned value) {
  if (value >= 100) *out++ = static_cast<char>('0' + value / 100);
  if (value >= 10) *out++ = static_cast<char>('0' + value / 10 % 10);
  *out++ = static_cast<char>('0' + value % 10);
  return out;
}

}  // namespace

std::string_view TextCleaner::Clean(std::string_view text) {
  if (IsAscii(text)) return text;
  size_t at = 0;
  while (at < text.size()) {
    size_t bytes = Utf8CharBytes(text, at);
    if (bytes == 0) break;
    at += bytes;
  }
  if (at == text.size()) return text;
  ++cleaned_;
  copy_.assign(text);
  while (at < copy_.size()) {
    size_t bytes = Utf8CharBytes(copy_, at);
    if (bytes == 0) copy_[at] = '?';
    at += std::max<size_t>(bytes, 1);
  }
  return copy_;
}

void SetNull(duckdb_vector vector, size_t row) {
  duckdb_vector_ensure_validity_writable(vector);
  duckdb_validity_set_row_invalid(duckdb_vector_get_validity(vector), row);
}

void WriteText(duckdb_vector vector, size_t row, std::string_view text, TextCleaner& cleaner) {
  text = cleaner.Clean(text);
  if (text.size() > kInlineTextBytes) {
    duckdb_unsafe_vector_assign_string_element_len(vector, row, text.data(), text.size());
    return;
  }
  // Short text lives in the vector itself, padded with zeros.
  duckdb_string_t value{};
  value.value.inlined.length = static_cast<uint32_t>(text.size());
  std::memcpy(value.value.inlined.inlined, text.data(), text.size());
  static_cast<duckdb_string_t*>(duckdb_vector_get_data(vector))[row] = value;
}

std::string_view AddressText(const model::SocketAddress& address, std::array<char, 64>* buffer) {
  if (address.family == AF_INET) {  // by hand: inet_ntop takes ten times as long, and there are millions
    char* out = buffer->data();
    for (size_t i = 0; i < 4; ++i) {
      if (i) *out++ = '.';
      out = PutDecimal(out, address.bytes[i]);
    }
    return {buffer->data(), static_cast<size_t>(out - buffer->data())};
  }
  if (address.family == AF_INET6 && inet_ntop(AF_INET6, address.bytes.data(), buffer->data(), INET6_ADDRSTRLEN)) {
    return buffer->data();
  }
  return {};
}

void ParseAddress(std::string_view text, model::SocketAddress* address) {
  if (text.empty() || text.size() >= INET6_ADDRSTRLEN) return;
  if (text.find(':') != std::string_view::npos) {
    char copy[INET6_ADDRSTRLEN] = {};
    std::memcpy(copy, text.data(), text.size());
    if (inet_pton(AF_INET6, copy, address->bytes.data()) == 1) address->family = AF_INET6;
    return;
  }
  unsigned value = 0;
  size_t part = 0;
  for (char c : text) {
    if (c == '.') {
      address->bytes[part++ & 3] = static_cast<uint8_t>(value);
      value = 0;
    } else {
      value = value * 10 + static_cast<unsigned>(c - '0');
    }
  }
  address->bytes[part & 3] = static_cast<uint8_t>(value);
  address->family = AF_INET;
}

void WriteTextList(duckdb_vector vector, size_t row, const std::vector<std::string>& texts, TextCleaner& cleaner) {
  idx_t at = GrowList(vector, row, texts.size());
  if (texts.empty()) return;
  duckdb_vector child = duckdb_list_vector_get_child(vector);
  for (const std::string& text : texts) WriteText(child, at++, text, cleaner);
}

void ReadTextList(duckdb_vector vector, size_t row, std::vector<std::string>* out) {
  duckdb_list_entry entry = EntryAt(vector, row);
  if (entry.length == 0) return;
  auto* texts = static_cast<duckdb_string_t*>(duckdb_vector_get_data(duckdb_list_vector_get_child(vector)));
  out->reserve(entry.length);
  for (idx_t i = entry.offset; i < entry.offset + entry.length; ++i) out->emplace_back(TextAt(texts, i));
}

void WriteMap(duckdb_vector vector, size_t row, const TextPairs& pairs, TextCleaner& cleaner) {
  WriteMapOf(vector, row, pairs, cleaner);
}

void WriteMap(duckdb_vector vector, size_t row, const std::map<std::string, std::string>& pairs, TextCleaner& cleaner) {
  WriteMapOf(vector, row, pairs, cleaner);
}

void ReadMap(duckdb_vector vector, size_t row, TextPairs* out) {
  out->reserve(EntryAt(vector, row).length);
  ReadMapWith(vector, row, [out](std::string_view key, std::string_view value) { out->emplace_back(key, value); });
}

void ReadMap(duckdb_vector vector, size_t row, std::map<std::string, std::string>* out) {
  ReadMapWith(vector, row, [out](std::string_view key, std::string_view value) { out->emplace(key, value); });
}

void WriteEvents(duckdb_vector vector, size_t row, const std::vector<model::SpanEvent>& events, TextCleaner& cleaner) {
  idx_t at = GrowList(vector, row, events.size());
  if (events.empty()) return;
  duckdb_vector child = duckdb_list_vector_get_child(vector);
  duckdb_vector times = duckdb_struct_vector_get_child(child, 0);
  duckdb_vector names = duckdb_struct_vector_get_child(child, 1);
  duckdb_vector attributes = duckdb_struct_vector_get_child(child, 2);
  for (const model::SpanEvent& event : events) {
    static_cast<int64_t*>(duckdb_vector_get_data(times))[at] = event.time_unix_ns;
    WriteText(names, at, event.name, cleaner);
    WriteMap(attributes, at, event.attributes, cleaner);
    ++at;
  }
}

void ReadEvents(duckdb_vector vector, size_t row, std::vector<model::SpanEvent>* out) {
  duckdb_list_entry entry = EntryAt(vector, row);
  if (entry.length == 0) return;
  duckdb_vector child = duckdb_list_vector_get_child(vector);
  auto* times = static_cast<int64_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(child, 0)));
  auto* names = static_cast<duckdb_string_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(child, 1)));
  duckdb_vector attributes = duckdb_struct_vector_get_child(child, 2);
  out->reserve(entry.length);
  for (idx_t i = entry.offset; i < entry.offset + entry.length; ++i) {
    model::SpanEvent& event = out->emplace_back();
    event.time_unix_ns = times[i];
    event.name = TextAt(names, i);
    ReadMap(attributes, i, &event.attributes);
  }
}

void WriteShortWaits(duckdb_vector vector, size_t row, const model::ThreadInterval& interval) {
  size_t count = 0;
  for (size_t i = 0; i < interval.short_ns.size(); ++i) count += interval.short_ns[i] || interval.short_count[i];
  idx_t at = GrowList(vector, row, count);
  if (count == 0) return;
  duckdb_vector child = duckdb_list_vector_get_child(vector);
  auto* classes = static_cast<uint8_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(child, 0)));
  auto* sums_ns = static_cast<int64_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(child, 1)));
  auto* counts = static_cast<uint32_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(child, 2)));
  for (size_t i = 0; i < interval.short_ns.size(); ++i) {
    if (!interval.short_ns[i] && !interval.short_count[i]) continue;
    classes[at] = static_cast<uint8_t>(i);
    sums_ns[at] = interval.short_ns[i];
    counts[at++] = interval.short_count[i];
  }
}

void ReadShortWaits(duckdb_vector vector, size_t row, model::ThreadInterval* interval) {
  duckdb_list_entry entry = EntryAt(vector, row);
  if (entry.length == 0) return;
  duckdb_vector child = duckdb_list_vector_get_child(vector);
  auto* classes = static_cast<uint8_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(child, 0)));
  auto* sums_ns = static_cast<int64_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(child, 1)));
  auto* counts = static_cast<uint32_t*>(duckdb_vector_get_data(duckdb_struct_vector_get_child(child, 2)));
  for (idx_t i = entry.offset; i < entry.offset + entry.length; ++i) {
    if (classes[i] >= interval->short_ns.size()) continue;
    interval->short_ns[classes[i]] = sums_ns[i];
    interval->short_count[classes[i]] = counts[i];
  }
}

}  // namespace tailspan::store::duckdb
