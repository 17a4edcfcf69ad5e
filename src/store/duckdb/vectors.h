// Values in and out of DuckDB vectors: text, 128-bit ids, lists and maps, without a call per value where the layout
// allows it. Positions count from the chunk's first row.
#pragma once

#include <duckdb.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/ids.h"
#include "model/kernel.h"
#include "model/span.h"

namespace tailspan::store::duckdb {

using TextPairs = std::vector<std::pair<std::string, std::string>>;

// Text is stored as UTF-8 and nothing else. Names from the kernel may be any bytes: bad ones become '?'.
class TextCleaner {
 public:
  // `text` itself when it is UTF-8, else a cleaned copy that lives until the next call.
  std::string_view Clean(std::string_view text);
  uint64_t TakeCount() { return std::exchange(cleaned_, 0); }  // how many were cleaned since the last call

 private:
  std::string copy_;
  uint64_t cleaned_ = 0;
};

inline bool IsValid(const uint64_t* validity, size_t row) {
  return !validity || (validity[row / 64] >> (row % 64) & 1);
}
void SetNull(duckdb_vector vector, size_t row);

void WriteText(duckdb_vector vector, size_t row, std::string_view text, TextCleaner& cleaner);
inline std::string_view TextAt(const duckdb_string_t* data, size_t row) {
  const duckdb_string_t& text = data[row];
  uint32_t size = text.value.inlined.length;
  return {size <= sizeof text.value.inlined.inlined ? text.value.inlined.inlined : text.value.pointer.ptr, size};
}

// DuckDB's UUID is a 128-bit integer with its top bit flipped, so that it sorts as text does.
inline duckdb_hugeint ToUuidValue(model::TraceId id) { return {id.lo, static_cast<int64_t>(id.hi ^ 1ull << 63)}; }
inline model::TraceId FromUuidValue(duckdb_hugeint value) {
  return {static_cast<uint64_t>(value.upper) ^ 1ull << 63, value.lower};
}

// "10.0.0.2" or "::1"; writes into `buffer`. Empty for no address.
std::string_view AddressText(const model::SocketAddress& address, std::array<char, 64>* buffer);
void ParseAddress(std::string_view text, model::SocketAddress* address);  // leaves it as it is when `text` is none

// Lists: writing a row appends its elements to the vector's child.
void WriteTextList(duckdb_vector vector, size_t row, const std::vector<std::string>& texts, TextCleaner& cleaner);
void ReadTextList(duckdb_vector vector, size_t row, std::vector<std::string>* out);

// Maps of text to text. Order is kept, and so is a repeated key.
void WriteMap(duckdb_vector vector, size_t row, const TextPairs& pairs, TextCleaner& cleaner);
void WriteMap(duckdb_vector vector, size_t row, const std::map<std::string, std::string>& pairs, TextCleaner& cleaner);
void ReadMap(duckdb_vector vector, size_t row, TextPairs* out);
void ReadMap(duckdb_vector vector, size_t row, std::map<std::string, std::string>* out);

// STRUCT(time_unix_ns BIGINT, name VARCHAR, attributes MAP(VARCHAR, VARCHAR))[]
void WriteEvents(duckdb_vector vector, size_t row, const std::vector<model::SpanEvent>& events, TextCleaner& cleaner);
void ReadEvents(duckdb_vector vector, size_t row, std::vector<model::SpanEvent>* out);

// STRUCT(wait_class wait_class, ns BIGINT, count UINTEGER)[], only what is not zero: most classes of most rows are.
void WriteShortWaits(duckdb_vector vector, size_t row, const model::ThreadInterval& interval);
void ReadShortWaits(duckdb_vector vector, size_t row, model::ThreadInterval* interval);

}  // namespace tailspan::store::duckdb
