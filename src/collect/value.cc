#include <fmt/format.h>

#include <cmath>

#include "collect/raw_span.h"

namespace tailspan::collect {

Value Value::Text(std::string value) {
  Value out;
  out.text = std::move(value);
  return out;
}

Value Value::Json(std::string value) {
  Value out;
  out.kind = Kind::kJson;
  out.text = std::move(value);
  return out;
}

Value Value::Bool(bool value) {
  Value out;
  out.kind = Kind::kBool;
  out.text = value ? "true" : "false";
  out.integer = value;
  return out;
}

Value Value::Int(int64_t value) {
  Value out;
  out.kind = Kind::kInt;
  out.text = std::to_string(value);
  out.integer = value;
  out.number = static_cast<double>(value);
  return out;
}

Value Value::Double(double value) {
  Value out;
  out.kind = Kind::kDouble;
  out.text = fmt::format("{}", value);
  out.number = value;
  constexpr double kIntegerMax = 9.0e18;
  if (std::isfinite(value) && std::fabs(value) < kIntegerMax) out.integer = static_cast<int64_t>(value);
  return out;
}

}  // namespace tailspan::collect
