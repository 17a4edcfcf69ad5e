// C++ face of tailspan_context.h: a scope within which this thread works for a span.
#pragma once

#include <cstdint>

#include "context/tailspan_context.h"

namespace tailspan::context {

// Sets the span for its lifetime and puts back what was current before. Scopes of one thread must end in reverse order
// (as local variables do) and on the thread that made them.
class SpanScope {
 public:
  SpanScope(const uint8_t trace_id[16], const uint8_t span_id[8], const uint8_t* uuid = nullptr)
      : had_outer_(tailspan_context_get(trace_id_, span_id_, uuid_) != 0) {
    tailspan_context_set(trace_id, span_id, uuid);
  }
  ~SpanScope() {
    if (had_outer_) {
      tailspan_context_set(trace_id_, span_id_, uuid_);
    } else {
      tailspan_context_clear();
    }
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  uint8_t trace_id_[16] = {}, span_id_[8] = {}, uuid_[16] = {};
  bool had_outer_;
};

}  // namespace tailspan::context
