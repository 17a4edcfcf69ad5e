// For tests: fills any model struct with random values and compares two of them, member by member, by reflection. A
// member that is added to the model is covered at once, so a store that forgets it fails its contract.
#pragma once

#include <sys/socket.h>

#include <array>
#include <boost/pfr.hpp>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/batch.h"
#include "model/ledger.h"

namespace tailspan::store::testing {

template <typename E>
struct EnumCount;  // how many values there are
#define TAILSPAN_ENUM_COUNT(E, last)                             \
  template <>                                                    \
  struct EnumCount<E> {                                          \
    static constexpr int kValue = static_cast<int>(E::last) + 1; \
  }
TAILSPAN_ENUM_COUNT(model::Cause, kUnexplained);
TAILSPAN_ENUM_COUNT(model::WaitClass, kOther);
TAILSPAN_ENUM_COUNT(model::TargetKind, kOther);
TAILSPAN_ENUM_COUNT(model::WakerKind, kOtherIrq);
TAILSPAN_ENUM_COUNT(model::ProcessEventKind, kThreadExit);
TAILSPAN_ENUM_COUNT(model::StepKind, kNewTask);
TAILSPAN_ENUM_COUNT(model::SpanChangeKind, kRestore);
TAILSPAN_ENUM_COUNT(model::SpanType, kClient);
TAILSPAN_ENUM_COUNT(model::SpanStatus, kCancelled);
TAILSPAN_ENUM_COUNT(model::BlameKind, kTimer);
TAILSPAN_ENUM_COUNT(model::Join, kNone);
#undef TAILSPAN_ENUM_COUNT

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsArray : std::false_type {};
template <typename T, size_t kSize>
struct IsArray<std::array<T, kSize>> : std::true_type {};

class RandomRows {
 public:
  explicit RandomRows(uint64_t seed) : random_(seed) {}

  template <typename T>
  T Make(size_t elements_max = 3) {
    T value{};
    Fill(value, elements_max);
    return value;
  }

  uint64_t Bits() { return random_(); }
  size_t Below(size_t limit) { return random_() % limit; }

  template <typename T>
  void Fill(T& value, size_t elements_max) {
    if constexpr (std::is_same_v<T, model::SocketAddress>) {
      FillAddress(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = Below(2) == 1;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(Below(EnumCount<T>::kValue));
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(Bits()) / 1e9;
    } else if constexpr (std::is_integral_v<T>) {
      value = Below(4) == 0 ? T{} : static_cast<T>(Bits() >> Below(60));
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = Text();
    } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>> ||
                         std::is_same_v<T, std::map<std::string, uint64_t>>) {
      for (size_t i = Below(elements_max + 1); i > 0; --i) Fill(value[Text()], elements_max);
    } else if constexpr (IsVector<T>::value) {
      value.resize(Below(elements_max + 1));
      for (auto& element : value) Fill(element, 3);
    } else if constexpr (IsArray<T>::value) {
      FillArray(value);
    } else {
      boost::pfr::for_each_field(value, [&](auto& field) { Fill(field, elements_max); });
    }
  }

 private:
  template <typename First, typename Second>
  void Fill(std::pair<First, Second>& value, size_t elements_max) {
    Fill(value.first, elements_max);
    Fill(value.second, elements_max);
  }

  template <typename T, size_t kSize>
  void FillArray(std::array<T, kSize>& value) {
    if constexpr (std::is_same_v<T, char>) {  // text, cut at the first zero
      size_t size = Below(kSize + 1);
      for (size_t i = 0; i < size; ++i) value[i] = static_cast<char>('!' + Below(90));
    } else {
      for (auto& element : value) Fill(element, 3);
    }
  }

  void FillAddress(model::SocketAddress& address) {
    size_t kind = Below(3);
    if (kind == 0) return;
    address.family = kind == 1 ? AF_INET : AF_INET6;
    for (size_t i = 0; i < (kind == 1 ? 4u : 16u); ++i) {
      address.bytes[i] = Below(3) == 0 ? uint8_t{0} : static_cast<uint8_t>(Bits());
    }
    address.port = static_cast<uint16_t>(Bits());
  }

  // Lengths on both sides of what DuckDB keeps inline, and characters of one to four bytes.
  std::string Text() {
    static const char* const kParts[] = {"a", "B", "7", " ", "'", "\"", "\\", "\n", "é", "中", "🙂", "%s", "{}"};
    std::string text;
    for (size_t i = Below(Below(4) == 0 ? 200 : 14); i > 0; --i) text += kParts[Below(std::size(kParts))];
    return text;
  }

  std::mt19937_64 random_;
};

// Where two values differ, as a path of member numbers ("12.3[4]"); empty when they are equal.
template <typename T>
std::string Difference(const T& a, const T& b) {
  if constexpr (IsVector<T>::value || IsArray<T>::value) {
    if (a.size() != b.size()) return ".size " + std::to_string(a.size()) + " != " + std::to_string(b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      std::string where = Difference(a[i], b[i]);
      if (!where.empty()) return "[" + std::to_string(i) + "]" + where;
    }
    return {};
  } else if constexpr (std::is_aggregate_v<T>) {
    std::string where;
    size_t index = 0;
    auto fields = boost::pfr::structure_tie(b);
    boost::pfr::for_each_field(a, [&](const auto& field, auto position) {
      if (!where.empty()) return;
      std::string inner = Difference(field, std::get<position.value>(fields));
      if (!inner.empty()) where = "." + std::to_string(index) + inner;
      ++index;
    });
    return where;
  } else {
    return a == b ? "" : " differs";
  }
}

// A batch of `rows` random rows of every kind. Times are random: only for reading without a window.
inline model::RecordBatch RandomBatch(RandomRows* random, const model::HostKey& host, size_t rows) {
  model::RecordBatch batch;
  batch.host = host;
  boost::pfr::for_each_field(batch, [&](auto& field) {
    if constexpr (IsVector<std::decay_t<decltype(field)>>::value) {
      field.resize(rows);
      for (auto& row : field) random->Fill(row, 4);
    }
  });
  // Small random numbers repeat; spans and processes must not, or only the newest would come back.
  for (auto& span : batch.spans) span.uuid = {random->Bits(), random->Bits()};
  for (auto& process : batch.processes) process.key.start_mono_ns = static_cast<int64_t>(random->Bits());
  return batch;
}

// A ledger that keeps the law.
inline model::TraceLedger RandomLedger(RandomRows* random, size_t pieces) {
  auto ledger = random->Make<model::TraceLedger>();
  ledger.paths.resize(1 + random->Below(5));
  for (auto& path : ledger.paths) random->Fill(path, 4);
  ledger.pieces.resize(pieces);
  int64_t at_ns = 0;
  for (auto& piece : ledger.pieces) {
    random->Fill(piece, 3);
    piece.start_ns = at_ns;
    at_ns += 1 + static_cast<int64_t>(random->Below(1'000'000));
    piece.end_ns = at_ns;
    piece.path = static_cast<uint32_t>(random->Below(ledger.paths.size()));
  }
  ledger.duration_ns = at_ns;
  return ledger;
}

}  // namespace tailspan::store::testing
