// The receiving side of tailspan: one port that speaks OTLP/HTTP and LangSmith's API and hands on normalised spans.
//
//   POST /v1/traces (/otel/v1/traces, /otel)    protobuf or JSON
//   POST /v1/metrics, /v1/logs                  accepted, counted, not stored
//   /info /runs /runs/batch /runs/multipart     LangSmith, also below /api/v1
// Bodies may be gzip, deflate or zstd, chunked, of up to Limits::body_bytes.
//
// The sink is called on the receiver's own thread, one call at a time, never with an empty batch; it should not block
// for long, since requests wait meanwhile. Start, Drain and Stop belong to one other thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loss.h"
#include "base/result.h"
#include "collect/limits.h"
#include "model/span.h"

namespace tailspan::collect {

struct ReceiverOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;          // 0: the kernel chooses, see Receiver::port
  bool keep_content = false;  // store prompts and answers as they came
  std::string version = "0";  // told to clients by /info
  Limits limits;
  base::LossCounters* loss = nullptr;  // null: the process' own
};

using SpanSink = std::function<void(std::vector<model::Span>&&)>;

class Receiver {
 public:
  // kUnavailable when the port is taken.
  static base::Result<std::unique_ptr<Receiver>> Start(const ReceiverOptions& options, SpanSink sink);
  ~Receiver();  // Stop()

  uint16_t port() const;
  // For when the traced program has ended: serves on until nothing has come for 200 ms, at most for `window`.
  void Drain(std::chrono::milliseconds window = std::chrono::milliseconds(2000));
  // Finishes requests in flight, gives the sink everything that is still held (runs without an end as incomplete), and
  // closes the port. Repeated calls do nothing.
  void Stop();

 private:
  class Core;
  explicit Receiver(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tailspan::collect
