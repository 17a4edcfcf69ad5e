#include "collect/langsmith/run_time.h"

#include <cmath>

namespace tailspan::collect::langsmith {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// Days from 1970-01-01 in the proleptic Gregorian calendar: years are counted from March, so that the leap day is last.
int64_t DaysFromCivil(int64_t year, int64_t month, int64_t day) {
  year -= month <= 2;
  int64_t era = year / 400;
  int64_t year_of_era = year - era * 400;
  int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  int64_t Number(size_t digits) {
    int64_t value = 0;
    if (text_.size() < digits) return Fail();
    for (size_t i = 0; i < digits; ++i) {
      if (text_[i] < '0' || text_[i] > '9') return Fail();
      value = value * 10 + (text_[i] - '0');
    }
    text_.remove_prefix(digits);
    return value;
  }
  // The digits that follow, as nanoseconds of a second.
  int64_t Fraction() {
    int64_t value = 0;
    int digits = 0;
    while (!text_.empty() && text_[0] >= '0' && text_[0] <= '9') {
      if (digits < 9) {
        value = value * 10 + (text_[0] - '0');
        ++digits;
      }
      text_.remove_prefix(1);
    }
    for (; digits < 9; ++digits) value *= 10;
    return value;
  }
  bool Skip(char c) {
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void Need(bool there) { ok_ = ok_ && there; }
  bool ok() const { return ok_; }
  std::string_view rest() const { return text_; }

 private:
  int64_t Fail() {
    ok_ = false;
    return 0;
  }
  std::string_view text_;
  bool ok_ = true;
};

int64_t UnixNs(int64_t year, int64_t month, int64_t day, int64_t hour, int64_t minute, int64_t second, int64_t ns) {
  bool valid = year >= 1970 && year < 2262 && month >= 1 && month <= 12 && day >= 1 && day <= 31 && hour < 24 &&
               minute < 60 && second <= 60;
  if (!valid) return 0;
  return (((DaysFromCivil(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * kSecondNs + ns;
}

}  // namespace

int64_t UnixNsFromIso(std::string_view text) {
  Scanner in(text);
  int64_t year = in.Number(4);
  in.Need(in.Skip('-'));
  int64_t month = in.Number(2);
  in.Need(in.Skip('-'));
  int64_t day = in.Number(2);
  in.Need(in.Skip('T') || in.Skip(' '));
  int64_t hour = in.Number(2);
  in.Need(in.Skip(':'));
  int64_t minute = in.Number(2);
  in.Need(in.Skip(':'));
  int64_t second = in.Number(2);
  int64_t ns = in.Skip('.') ? in.Fraction() : 0;
  int64_t zone_s = 0;
  if (!in.Skip('Z') && !in.rest().empty()) {
    bool west = in.Skip('-');
    in.Need(west || in.Skip('+'));
    zone_s = in.Number(2) * 3600;
    in.Skip(':');
    if (!in.rest().empty()) zone_s += in.Number(2) * 60;
    if (west) zone_s = -zone_s;
  }
  if (!in.ok()) return 0;
  int64_t unix_ns = UnixNs(year, month, day, hour, minute, second, ns);
  return unix_ns == 0 ? 0 : unix_ns - zone_s * kSecondNs;
}

int64_t UnixNsFromJson(Json json, bool* whole_ms) {
  if (json.is_string()) {
    int64_t number = 0;
    if (!IntOf(json, &number)) return UnixNsFromIso(StringOf(json));
  }
  double value = 0;
  int64_t integer = 0;
  if (IntOf(json, &integer)) value = static_cast<double>(integer);
  double fraction = 0;
  if (!json.get_double().get(fraction) && std::isfinite(fraction)) value = fraction;
  if (value <= 0) return 0;
  if (value < 1e11) return static_cast<int64_t>(value * 1e9);
  bool whole = static_cast<double>(integer) == value;
  if (value < 1e14) {
    if (whole && whole_ms) *whole_ms = true;
    return whole ? integer * 1'000'000 : std::llround(value * 1e6);
  }
  if (value < 1e17) return whole ? integer * 1000 : std::llround(value * 1e3);
  return value < 9.2e18 ? integer : 0;
}

DottedOrder ParseDottedOrder(std::string_view text) {
  constexpr size_t kUuidChars = 36;
  DottedOrder out;
  while (!text.empty()) {
    size_t dot = text.find('.');
    std::string_view segment = text.substr(0, dot);
    text = dot == std::string_view::npos ? std::string_view() : text.substr(dot + 1);
    if (segment.size() <= kUuidChars) return {};
    auto id = model::TraceIdFromText(segment.substr(segment.size() - kUuidChars));
    if (!id) return {};
    if (!out.root) out.root = *id;
    out.parent = out.self;
    out.self = *id;
    Scanner in(segment.substr(0, segment.size() - kUuidChars));
    int64_t year = in.Number(4);
    int64_t month = in.Number(2);
    int64_t day = in.Number(2);
    in.Need(in.Skip('T'));
    int64_t hour = in.Number(2);
    int64_t minute = in.Number(2);
    int64_t second = in.Number(2);
    int64_t ns = in.Fraction();
    out.start_unix_ns = in.ok() ? UnixNs(year, month, day, hour, minute, second, ns) : 0;
  }
  return out;
}

}  // namespace tailspan::collect::langsmith
