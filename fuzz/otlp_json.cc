// An OTLP request in JSON.
#include "collect/otlp/otlp.h"
#include "fuzz/target.h"

void tailspan::fuzz::RunOne(std::string_view input) {
  base::LossCounters loss;
  collect::otlp::Decoder decoder({}, false, loss);
  (void)decoder.Json(input).ok();
}
