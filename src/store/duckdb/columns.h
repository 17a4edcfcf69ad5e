// Tables described once: name, SQL type, documentation, and how a run of rows goes into and out of a vector. DDL, the
// writer, the reader and docs/schema.md all come from these descriptions (tables.h holds them).
//
// A column works on runs of rows, not on single values, so that the type of each value is resolved at compile time and
// the call through std::function is paid once for up to 2,048 rows.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/duckdb/vectors.h"

namespace tailspan::store::duckdb {

// Start times of processes by pid, so that each row can name its process for good: pids come back.
class ProcessStarts {
 public:
  // Two times closer than a tick of /proc/PID/stat are one process; the first one seen stays.
  void Add(int32_t pid, int64_t start_mono_ns);
  // The start of the process that had `pid` at `at_mono_ns`; nullopt when it is not known.
  std::optional<int64_t> Find(int32_t pid, int64_t at_mono_ns) const;

 private:
  std::unordered_map<int32_t, std::vector<int64_t>> by_pid_;  // ascending
};

// The accessor of a member, for the functions of Table.
#define TAILSPAN_FIELD(path) \
  [](auto& row) -> auto& { return row.path; }

// What a row needs beside itself.
struct WriteContext {
  uint16_t host_id = 0;
  uint64_t ledger_id = 0;
  model::TraceId trace_id;
  model::SpanId root_id = 0;
  ProcessStarts* process_starts = nullptr;
  TextCleaner cleaner;
};

template <typename Row>
struct Column {
  std::string name, sql_type, doc;
  // Rows [0, n) to positions [at, at + n).
  std::function<void(const Row* rows, size_t n, duckdb_vector vector, size_t at, WriteContext& context)> write;
  // Positions [at, at + n) to rows [0, n), which hold their defaults. Empty: the column is not read back.
  std::function<void(duckdb_vector vector, size_t at, size_t n, Row* rows)> read;
};

// A closed list stored as DuckDB ENUM: a byte in the file, a name for whoever queries it. Append only.
struct EnumType {
  std::string sql_name;
  std::vector<std::string> names;
};

// Which column of time a TimeWindow is compared with.
struct WindowColumns {
  std::string from, to;  // equal for a moment; empty: rows are never left out
  bool is_unix = false;
};

template <typename T>
constexpr const char* SqlIntegerType() {
  if constexpr (std::is_same_v<T, bool>) return "BOOLEAN";
  if constexpr (std::is_same_v<T, double>) return "DOUBLE";
  if constexpr (std::is_same_v<T, uint8_t>) return "UTINYINT";
  if constexpr (std::is_same_v<T, uint16_t>) return "USMALLINT";
  if constexpr (std::is_same_v<T, uint32_t>) return "UINTEGER";
  if constexpr (std::is_same_v<T, int32_t>) return "INTEGER";
  if constexpr (std::is_same_v<T, int64_t>) return "BIGINT";
  if constexpr (std::is_same_v<T, uint64_t>) return "UBIGINT";
}

template <typename T>
T* DataOf(duckdb_vector vector) {
  return static_cast<T*>(duckdb_vector_get_data(vector));
}

template <typename RowType>
class Table {
 public:
  using Row = RowType;
  Table(std::string name, std::string doc, WindowColumns window = {})
      : name_(std::move(name)), doc_(std::move(doc)), window_(std::move(window)) {}

  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }
  const WindowColumns& window() const { return window_; }
  const std::vector<Column<Row>>& columns() const { return columns_; }

  void Add(Column<Row> column) { columns_.push_back(std::move(column)); }

  // `get` maps a (const) row to a reference to its member.
  template <typename Get>
  void Number(std::string name, std::string doc, Get get) {
    using T = std::decay_t<decltype(get(std::declval<Row&>()))>;
    columns_.push_back({std::move(name), SqlIntegerType<T>(), std::move(doc),
                        [get](const Row* rows, size_t n, duckdb_vector vector, size_t at, WriteContext&) {
                          T* data = DataOf<T>(vector) + at;
                          for (size_t i = 0; i < n; ++i) data[i] = get(rows[i]);
                        },
                        [get, default_is_zero = IsZero(get)](duckdb_vector vector, size_t at, size_t n, Row* rows) {
                          const T* data = DataOf<T>(vector) + at;
                          // Most counters of most rows are zero, and so are fresh rows.
                          if (default_is_zero && std::all_of(data, data + n, [](T v) { return v == T{}; })) return;
                          for (size_t i = 0; i < n; ++i) get(rows[i]) = data[i];
                        }});
  }

  // A number whose `none` is stored as NULL.
  template <typename Get, typename T>
  void Optional(std::string name, std::string doc, Get get, T none_value) {
    using V = std::decay_t<decltype(get(std::declval<Row&>()))>;
    const V none = static_cast<V>(none_value);
    Nullable<V>(
        std::move(name), SqlIntegerType<V>(), std::move(doc), get, [none](const V& value) { return value == none; },
        [](const V& value) { return value; }, [](V value) { return value; }, [none](V& value) { value = none; });
  }

  template <typename Get>
  void Id128(std::string name, std::string doc, Get get) {
    Nullable<duckdb_hugeint>(
        std::move(name), "UUID", std::move(doc), get, [](const model::TraceId& id) { return !id; }, ToUuidValue,
        FromUuidValue, [](model::TraceId& id) { id = {}; });
  }

  template <typename Get>
  void SpanIdOf(std::string name, std::string doc, Get get) {
    Optional(std::move(name), std::move(doc), get, 0);
  }

  // Values beyond the list come out as NULL and are read back as the member's default.
  template <typename Get>
  void Enum(std::string name, std::string doc, Get get, const EnumType& type) {
    using E = std::decay_t<decltype(get(std::declval<Row&>()))>;
    Nullable<uint8_t>(
        std::move(name), type.sql_name, std::move(doc), get,
        [count = type.names.size()](const E& value) { return static_cast<size_t>(value) >= count; },
        [](const E& value) { return static_cast<uint8_t>(value); }, [](uint8_t value) { return static_cast<E>(value); },
        [](E&) {});
  }

  // std::string, or a fixed array of char cut at its first zero.
  template <typename Get>
  void Text(std::string name, std::string doc, Get get) {
    using T = std::decay_t<decltype(get(std::declval<Row&>()))>;
    columns_.push_back({std::move(name), "VARCHAR", std::move(doc),
                        [get](const Row* rows, size_t n, duckdb_vector vector, size_t at, WriteContext& context) {
                          for (size_t i = 0; i < n; ++i)
                            WriteText(vector, at + i, ViewOf(get(rows[i])), context.cleaner);
                        },
                        [get](duckdb_vector vector, size_t at, size_t n, Row* rows) {
                          const auto* data = DataOf<duckdb_string_t>(vector) + at;
                          for (size_t i = 0; i < n; ++i) {
                            std::string_view text = TextAt(data, i);
                            if (text.empty()) continue;
                            T& to = get(rows[i]);
                            if constexpr (std::is_same_v<T, std::string>) {
                              to.assign(text);
                            } else {
                              std::memcpy(to.data(), text.data(), std::min(text.size(), to.size()));
                            }
                          }
                        }});
  }

  // Two columns, NAME_address and NAME_port.
  template <typename Get>
  void Address(const std::string& name, const std::string& doc, Get get) {
    columns_.push_back({name + "_address", "VARCHAR", doc + ": IP address; NULL for none",
                        [get](const Row* rows, size_t n, duckdb_vector vector, size_t at, WriteContext& context) {
                          std::array<char, 64> buffer;
                          for (size_t i = 0; i < n; ++i) {
                            std::string_view text = AddressText(get(rows[i]), &buffer);
                            if (text.empty()) {
                              SetNull(vector, at + i);
                            } else {
                              WriteText(vector, at + i, text, context.cleaner);
                            }
                          }
                        },
                        [get](duckdb_vector vector, size_t at, size_t n, Row* rows) {
                          const auto* data = DataOf<duckdb_string_t>(vector);
                          const uint64_t* validity = duckdb_vector_get_validity(vector);
                          for (size_t i = 0; i < n; ++i) {
                            if (IsValid(validity, at + i)) ParseAddress(TextAt(data, at + i), &get(rows[i]));
                          }
                        }});
    Number(
        name + "_port", doc + ": port", [get](auto& row) -> auto& { return get(row).port; });
  }

  template <typename Get>
  void TextList(std::string name, std::string doc, Get get) {
    List(std::move(name), "VARCHAR[]", std::move(doc), get, WriteTextList, ReadTextList);
  }
  template <typename Get>
  void Map(std::string name, std::string doc, Get get) {
    List(
        std::move(name), "MAP(VARCHAR, VARCHAR)", std::move(doc), get,
        [](duckdb_vector vector, size_t row, const auto& pairs, TextCleaner& cleaner) {
          WriteMap(vector, row, pairs, cleaner);
        },
        [](duckdb_vector vector, size_t row, auto* pairs) { ReadMap(vector, row, pairs); });
  }
  template <typename Get>
  void Events(std::string name, std::string doc, Get get) {
    List(std::move(name), "STRUCT(time_unix_ns BIGINT, name VARCHAR, attributes MAP(VARCHAR, VARCHAR))[]",
         std::move(doc), get, WriteEvents, ReadEvents);
  }

  // Columns that come from the context and are not part of a row.
  void Host() {
    Constant<uint16_t>("host_id", "the host and boot of this row (table host)",
                       [](const WriteContext& context) { return context.host_id; });
  }
  void Ledger() {
    Constant<uint64_t>("ledger_id", "the trace's ledger (table trace)",
                       [](const WriteContext& context) { return context.ledger_id; });
    Constant<duckdb_hugeint>(
        "trace_id", "the trace", [](const WriteContext& context) { return ToUuidValue(context.trace_id); }, "UUID");
    Constant<uint64_t>("root_id", "the root span", [](const WriteContext& context) { return context.root_id; });
  }
  // `pid` and `at` map a row to its process and to a moment when that process was there.
  template <typename GetPid, typename GetAt>
  void ProcessStart(GetPid pid, GetAt at_mono_ns) {
    columns_.push_back(
        {"process_start_mono_ns", "BIGINT",
         "when the process of this row started: with pid the process's identity (table process); NULL unknown",
         [pid, at_mono_ns](const Row* rows, size_t n, duckdb_vector vector, size_t at, WriteContext& context) {
           int64_t* data = DataOf<int64_t>(vector);
           for (size_t i = 0; i < n; ++i) {
             auto start = context.process_starts->Find(pid(rows[i]), at_mono_ns(rows[i]));
             if (start) {
               data[at + i] = *start;
             } else {
               SetNull(vector, at + i);
             }
           }
         },
         nullptr});
  }

 private:
  template <typename Get>
  static bool IsZero(Get get) {
    Row row{};
    auto& value = get(row);
    return value == std::decay_t<decltype(value)>{};
  }

  static std::string_view ViewOf(const std::string& text) { return text; }
  template <size_t kSize>
  static std::string_view ViewOf(const std::array<char, kSize>& text) {
    return {text.data(), strnlen(text.data(), kSize)};
  }

  // `reset` sets a member whose stored value is NULL.
  template <typename Stored, typename Get, typename IsNone, typename To, typename From, typename Reset>
  void Nullable(std::string name, std::string sql_type, std::string doc, Get get, IsNone is_none, To to, From from,
                Reset reset) {
    columns_.push_back({std::move(name), std::move(sql_type), std::move(doc),
                        [=](const Row* rows, size_t n, duckdb_vector vector, size_t at, WriteContext&) {
                          Stored* data = DataOf<Stored>(vector);
                          uint64_t* validity = nullptr;
                          for (size_t i = 0; i < n; ++i) {
                            const auto& value = get(rows[i]);
                            if (!is_none(value)) {
                              data[at + i] = to(value);
                              continue;
                            }
                            if (!validity) {
                              duckdb_vector_ensure_validity_writable(vector);
                              validity = duckdb_vector_get_validity(vector);
                            }
                            validity[(at + i) / 64] &= ~(1ull << ((at + i) % 64));
                          }
                        },
                        [=](duckdb_vector vector, size_t at, size_t n, Row* rows) {
                          const Stored* data = DataOf<Stored>(vector);
                          const uint64_t* validity = duckdb_vector_get_validity(vector);
                          for (size_t i = 0; i < n; ++i) {
                            if (IsValid(validity, at + i)) {
                              get(rows[i]) = from(data[at + i]);
                            } else {
                              reset(get(rows[i]));
                            }
                          }
                        }});
  }

  template <typename Stored, typename Value>
  void Constant(std::string name, std::string doc, Value value, std::string sql_type = "") {
    if constexpr (std::is_integral_v<Stored>) sql_type = SqlIntegerType<Stored>();
    columns_.push_back({std::move(name), std::move(sql_type), std::move(doc),
                        [value](const Row*, size_t n, duckdb_vector vector, size_t at, WriteContext& context) {
                          std::fill_n(DataOf<Stored>(vector) + at, n, value(context));
                        },
                        nullptr});
  }

  template <typename Get, typename Write, typename Read>
  void List(std::string name, std::string sql_type, std::string doc, Get get, Write write, Read read) {
    columns_.push_back({std::move(name), std::move(sql_type), std::move(doc),
                        [=](const Row* rows, size_t n, duckdb_vector vector, size_t at, WriteContext& context) {
                          for (size_t i = 0; i < n; ++i) write(vector, at + i, get(rows[i]), context.cleaner);
                        },
                        [=](duckdb_vector vector, size_t at, size_t n, Row* rows) {
                          for (size_t i = 0; i < n; ++i) read(vector, at + i, &get(rows[i]));
                        }});
  }

  std::string name_, doc_;
  WindowColumns window_;
  std::vector<Column<Row>> columns_;
};

}  // namespace tailspan::store::duckdb
