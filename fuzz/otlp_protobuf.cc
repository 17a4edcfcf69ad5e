// An OTLP request in protobuf, as any client may send it.
#include "collect/otlp/otlp.h"
#include "fuzz/target.h"

void tailspan::fuzz::RunOne(std::string_view input) {
  base::LossCounters loss;
  collect::otlp::Decoder decoder({}, true, loss);
  auto decoded = decoder.Protobuf(input);
  if (decoded.ok()) collect::otlp::AnswerProtobuf(decoded->rejected);
}
