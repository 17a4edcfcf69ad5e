// OTLP traces, protobuf (protozero) and JSON (simdjson), to spans; and the answers the protocol asks for.
//
// The decoders take hostile bytes. A body that is not valid as a whole gives an error and no span; a span with ids of
// the wrong length is left out and counted, the rest is kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/loss.h"
#include "base/result.h"
#include "collect/limits.h"
#include "collect/normalise.h"
#include "model/span.h"

namespace tailspan::collect::otlp {

struct Decoded {
  std::vector<model::Span> spans;
  int64_t rejected = 0;
  size_t bytes = 0;  // that the spans take in memory, roughly
};

class Decoder {
 public:
  Decoder(const Limits& limits, bool keep_content, base::LossCounters& loss);

  // kInvalidArgument: not an OTLP request. kResourceExhausted: its spans would take more than Limits::decoded_bytes; a
  // few bytes on the wire can make a hundred in memory.
  base::Result<Decoded> Protobuf(std::string_view body);
  base::Result<Decoded> Json(std::string_view body);

 private:
  Limits limits_;
  base::LossCounters& loss_;
  Normaliser normaliser_;
};

base::Error TooManySpans(const Limits& limits);

// Turns a raw span into a normalised one, or counts it as rejected.
void Accept(const RawResource& resource, RawSpan&& raw, Normaliser* normaliser, base::LossCounters& loss,
            Decoded* decoded);

// ExportTraceServiceResponse; empty but for rejected spans.
std::string AnswerProtobuf(int64_t rejected);
std::string AnswerJson(int64_t rejected);
// google.rpc.Status for an HTTP status.
std::string ErrorProtobuf(int http_status, std::string_view message);
std::string ErrorJson(int http_status, std::string_view message);

}  // namespace tailspan::collect::otlp
