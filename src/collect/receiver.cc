#include "collect/receiver.h"

#include <map>
#include <utility>

#include "base/clock.h"
#include "collect/http/peer_process.h"
#include "collect/http/server.h"
#include "collect/langsmith/langsmith.h"
#include "collect/otlp/otlp.h"
#include "collect/span_merger.h"
#include "collect/text.h"

namespace tailspan::collect {
namespace {

using base::Loss;
using std::chrono::milliseconds;

constexpr milliseconds kQuiet{200};
constexpr milliseconds kStopWindow{2000};
constexpr int64_t kSweepNs = 1'000'000'000;
constexpr char kProtobufType[] = "application/x-protobuf";
constexpr char kJsonType[] = "application/json";

enum class Format { kProtobuf, kJson, kOther };

Format FormatOf(std::string_view content_type) {
  std::string type = Lower(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  if (type == kProtobufType || type == "application/protobuf") return Format::kProtobuf;
  return type == kJsonType ? Format::kJson : Format::kOther;
}

enum class Route { kTraces, kNotStored, kLangsmith, kNone };

// `path` loses the prefix that some clients are configured with.
Route RouteOf(std::string_view* path) {
  constexpr std::string_view kPrefix = "/api/v1";
  if (path->substr(0, kPrefix.size() + 1) == "/api/v1/") path->remove_prefix(kPrefix.size());
  while (path->size() > 1 && path->back() == '/') path->remove_suffix(1);
  if (langsmith::Api::Serves(*path)) return Route::kLangsmith;
  std::string_view otlp = *path;
  if (otlp == "/otel") return Route::kTraces;  // the Python client's OTel mode posts to the bare endpoint
  if (otlp.substr(0, 6) == "/otel/") otlp.remove_prefix(5);
  if (otlp == "/v1/traces") return Route::kTraces;
  if (otlp == "/v1/metrics" || otlp == "/v1/logs") return Route::kNotStored;
  return Route::kNone;
}

}  // namespace

// Everything below Receiver runs on the server's thread but for Start, Drain and Stop.
class Receiver::Core {
 public:
  Core(const ReceiverOptions& options, SpanSink sink)
      : loss_(options.loss ? *options.loss : base::LossCounters::Global()),
        sink_(std::move(sink)),
        decoder_(options.limits, options.keep_content, loss_),
        langsmith_(options.limits, options.keep_content, options.version, loss_),
        merger_(options.limits, loss_),
        connections_max_(options.limits.connections) {}

  base::Status Listen(const ReceiverOptions& options) {
    http::ServerOptions server_options;
    server_options.address = options.address;
    server_options.port = options.port;
    server_options.limits = options.limits;
    server_options.loss = &loss_;
    auto server = http::Server::Start(
        server_options, [this](const http::Request& request) { return Handle(request); },
        [](int status, const std::string& message, const http::Request& request) {
          return Error(status, message, request);
        },
        [this] { Tick(); });
    if (!server.ok()) return std::move(server).error();
    server_ = std::move(*server);
    return {};
  }

  http::Server& server() { return *server_; }

  void Flush() {
    std::vector<model::Span> runs;
    langsmith_.Flush(&runs);
    int64_t now_mono_ns = base::MonoNowNs();
    merger_.AddRuns(std::move(runs), now_mono_ns, &ready_);
    merger_.Flush(&ready_);
    HandOn();
  }

 private:
  static http::Response Error(int status, const std::string& message, const http::Request& request) {
    if (FormatOf(request.content_type) == Format::kProtobuf) {
      return {status, kProtobufType, otlp::ErrorProtobuf(status, message)};
    }
    return {status, kJsonType, otlp::ErrorJson(status, message)};
  }

  http::Response Handle(const http::Request& request) {
    std::string_view path = request.path;
    Route route = RouteOf(&path);
    int64_t now_mono_ns = base::MonoNowNs();
    http::Response answer;
    if (route == Route::kLangsmith) {
      merger_.SeenLangsmith();
      std::vector<model::Span> runs;
      int32_t sender = request.body.empty() ? 0 : SenderOf(request);
      answer = langsmith_.Handle(request, path, sender, now_mono_ns, &runs);
      merger_.AddRuns(std::move(runs), now_mono_ns, &ready_);
    } else if (route == Route::kNone) {
      answer = Error(404, "no such path: " + std::string(path.substr(0, 200)), request);
    } else if (request.method != "POST") {
      answer = Error(405, "use POST", request);
    } else {
      answer = Otlp(request, route, now_mono_ns);
    }
    HandOn();
    return answer;
  }

  // The process that sent the request, 0 unknown.
  int32_t SenderOf(const http::Request& request) {
    auto [sender, is_new] = sender_pids_.try_emplace(request.connection, 0);
    if (is_new) sender->second = senders_.Find(request.peer, request.own);
    int32_t pid = sender->second;
    // Connections are numbered as they come: the first is the oldest.
    if (sender_pids_.size() > connections_max_) sender_pids_.erase(sender_pids_.begin());
    return pid;
  }

  http::Response Otlp(const http::Request& request, Route route, int64_t now_mono_ns) {
    Format format = FormatOf(request.content_type);
    if (format == Format::kOther) {
      loss_.Add(Loss::kBodyInvalid);
      return Error(415, "Content-Type must be application/x-protobuf or application/json", request);
    }
    bool protobuf = format == Format::kProtobuf;
    otlp::Decoded decoded;
    if (route == Route::kNotStored) {
      loss_.Add(Loss::kSignalNotStored);
    } else {
      auto result = protobuf ? decoder_.Protobuf(request.body) : decoder_.Json(request.body);
      if (!result.ok()) {
        bool large = result.error().code == base::Code::kResourceExhausted;
        loss_.Add(large ? Loss::kBodyTooLarge : Loss::kBodyInvalid);
        return Error(large ? 413 : 400, result.error().message, request);
      }
      decoded = std::move(*result);
    }
    merger_.AddSpans(std::move(decoded.spans), now_mono_ns, &ready_);
    if (protobuf) return {200, kProtobufType, otlp::AnswerProtobuf(decoded.rejected)};
    return {200, kJsonType, otlp::AnswerJson(decoded.rejected)};
  }

  void Tick() {
    int64_t now_mono_ns = base::MonoNowNs();
    std::vector<model::Span> runs;
    langsmith_.TakeOpen(now_mono_ns, &runs);
    if (now_mono_ns - swept_mono_ns_ >= kSweepNs) {
      swept_mono_ns_ = now_mono_ns;
      langsmith_.Sweep(now_mono_ns, &runs);
    }
    merger_.AddRuns(std::move(runs), now_mono_ns, &ready_);
    merger_.TakeReady(now_mono_ns, &ready_);
    HandOn();
  }

  void HandOn() {
    if (ready_.empty()) return;
    sink_(std::exchange(ready_, {}));
  }

  base::LossCounters& loss_;
  SpanSink sink_;
  otlp::Decoder decoder_;
  langsmith::Api langsmith_;
  SpanMerger merger_;
  std::vector<model::Span> ready_;
  int64_t swept_mono_ns_ = 0;
  http::PeerProcesses senders_;
  std::map<uint64_t, int32_t> sender_pids_;  // by connection
  size_t connections_max_;
  std::unique_ptr<http::Server> server_;  // last: its thread uses what stands above
};

base::Result<std::unique_ptr<Receiver>> Receiver::Start(const ReceiverOptions& options, SpanSink sink) {
  auto core = std::make_unique<Core>(options, std::move(sink));
  base::Status listening = core->Listen(options);
  if (!listening.ok()) return std::move(listening).error().WithContext("receiver");
  return std::unique_ptr<Receiver>(new Receiver(std::move(core)));
}

Receiver::Receiver(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Receiver::~Receiver() { Stop(); }
uint16_t Receiver::port() const { return core_->server().port(); }
void Receiver::Drain(milliseconds window) { core_->server().Quiesce(window, kQuiet); }
void Receiver::Stop() {
  core_->server().Stop(kStopWindow, [this] { core_->Flush(); });
}

}  // namespace tailspan::collect
