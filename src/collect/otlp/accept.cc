#include "collect/otlp/otlp.h"

#include "collect/text.h"

namespace tailspan::collect::otlp {
namespace {

using base::Loss;

constexpr size_t kTraceIdBytes = 16;
constexpr size_t kSpanIdBytes = 8;

const uint8_t* Bytes(const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); }

// LangSmith's OTel mode puts whole UUIDs into attributes (JavaScript does; Python 0.15 does not).
void TakeLangsmithIds(const RawSpan& raw, model::Span* span) {
  for (const auto& [key, value] : raw.attributes) {
    if (key.compare(0, 10, "langsmith.") != 0) continue;
    if (key == "langsmith.span.kind") span->source = "langsmith-otel";
    if (key == "langsmith.span.id") {
      if (auto id = model::TraceIdFromText(value.text)) span->uuid = *id;
    }
    if (key == "langsmith.span.parent_id") {
      if (auto id = model::TraceIdFromText(value.text)) span->parent_uuid = *id;
    }
  }
}

}  // namespace

Decoder::Decoder(const Limits& limits, bool keep_content, base::LossCounters& loss)
    : limits_(limits), loss_(loss), normaliser_(limits, keep_content, loss) {}

void Accept(const RawResource& resource, RawSpan&& raw, Normaliser* normaliser, base::LossCounters& loss,
            Decoded* decoded) {
  bool sized = raw.trace_id.size() == kTraceIdBytes && raw.span_id.size() == kSpanIdBytes &&
               (raw.parent_id.empty() || raw.parent_id.size() == kSpanIdBytes);
  model::Span span;
  if (sized) {
    span.trace_id = model::TraceIdFromBytes(Bytes(raw.trace_id));
    span.span_id = model::SpanIdFromBytes(Bytes(raw.span_id));
    if (!raw.parent_id.empty()) span.parent_id = model::SpanIdFromBytes(Bytes(raw.parent_id));
  }
  if (!sized || !span.trace_id || span.span_id == 0) {
    ++decoded->rejected;
    loss.Add(Loss::kSpanRejected);
    return;
  }
  span.source = "otlp";
  TakeLangsmithIds(raw, &span);
  normaliser->Apply(resource, std::move(raw), &span);
  decoded->bytes += ApproxBytes(span);
  decoded->spans.push_back(std::move(span));
}

base::Error TooManySpans(const Limits& limits) {
  return {base::Code::kResourceExhausted,
          "the spans of one body take more than " + std::to_string(limits.decoded_bytes) + " bytes"};
}

}  // namespace tailspan::collect::otlp
