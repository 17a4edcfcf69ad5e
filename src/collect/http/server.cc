// The only file that includes Beast: it compiles slowly, and its exceptions end here.
#include "collect/http/server.h"

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <future>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "collect/http/encoding.h"

namespace tailspan::collect::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using asio::ip::tcp;
using base::Code;
using base::Error;
using base::Loss;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

namespace {

// Beast reads 512 bytes at a time into a buffer that has not been given room (1.2 ms of CPU for a 160 KB body).
constexpr size_t kReadBufferBytes = 128u << 10;
constexpr size_t kLingerBytesMax = 256u << 20;
constexpr milliseconds kLinger{1000};
constexpr milliseconds kAcceptPause{50};

}  // namespace

class Session;

struct Server::Core : std::enable_shared_from_this<Server::Core> {
  explicit Core(ServerOptions o) : options(std::move(o)), acceptor(io), accept_timer(io), tick_timer(io) {}

  void Accept();
  void AcceptWhenThereIsRoom();
  void AcceptOne();
  void Tick();
  void Run();
  bool MakeRoom();      // for one more connection; false when none can be closed
  bool CloseSlowest();  // of those that are sending a request; false when there is none
  void LimitAllBodies();

  ServerOptions options;
  Handler handler;
  Refusal refusal;
  std::function<void()> on_tick;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};  // until the last task has run
  tcp::acceptor acceptor;
  asio::steady_timer accept_timer;
  asio::steady_timer tick_timer;
  std::list<std::weak_ptr<Session>> sessions;  // oldest request first is found by scanning: the list is bounded
  std::atomic<size_t> session_count{0};
  uint64_t last_session = 0;
  size_t all_bodies_bytes = 0;       // of the requests being read
  std::atomic<size_t> in_flight{0};  // requests whose header has begun to come and whose answer is not out
  std::atomic<int64_t> last_done_mono_ns{0};
  bool stopping = false;  // server thread only
  uint16_t port = 0;
  std::thread thread;
  bool joined = false;
};

// One connection. Reads a header, decides, reads the body, answers, and again.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, std::shared_ptr<Server::Core> core) : stream_(std::move(socket)), core_(std::move(core)) {
    buffer_.reserve(kReadBufferBytes);
    ++core_->session_count;
    number_ = ++core_->last_session;
    beast::error_code ignored;
    peer_port_ = stream_.socket().remote_endpoint(ignored).port();
  }
  ~Session() {
    SetBusy(false);
    CountBody(0);
    --core_->session_count;
  }

  void Start() { ReadHeader(); }
  bool busy() const { return busy_; }
  // A new connection is given the time of a slow request to begin.
  bool IsIdle() const {
    return !busy_ && (answered_ || base::MonoNowNs() - idle_since_mono_ns_ >= core_->options.limits.slow_ns);
  }
  // When the request that is still coming began; 0: none is.
  int64_t reading_since_mono_ns() const { return reading_since_mono_ns_; }
  size_t body_bytes() const { return body_bytes_; }
  int64_t idle_since_mono_ns() const { return idle_since_mono_ns_; }
  // The answer is worth one try; whoever sends so slowly may not read either.
  void CloseSlow() {
    core_->options.loss->Add(Loss::kRequestTooSlow);
    constexpr std::string_view kAnswer =
        "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    beast::error_code ignored;
    stream_.socket().non_blocking(true, ignored);
    stream_.socket().write_some(asio::buffer(kAnswer), ignored);
    reading_since_mono_ns_ = 0;
    CountBody(0);
    CloseNow();
  }
  void CloseNow() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.socket().close(ignored);
  }

 private:
  void SetBusy(bool busy) {
    if (busy == busy_) return;
    busy_ = busy;
    if (busy) {
      ++core_->in_flight;
    } else {
      --core_->in_flight;
      idle_since_mono_ns_ = base::MonoNowNs();
      core_->last_done_mono_ns = idle_since_mono_ns_;
    }
  }

  // What the body that is being read holds by now.
  void CountBody(size_t bytes) {
    core_->all_bodies_bytes -= body_bytes_;
    body_bytes_ = bytes;
    core_->all_bodies_bytes += body_bytes_;
  }

  void ReadHeader() {
    const Limits& limits = core_->options.limits;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits.header_bytes));
    parser_->body_limit(limits.body_bytes);
    request_ = {};
    request_.peer_port = peer_port_;
    request_.own_port = core_->port;
    request_.connection = number_;
    // Pipelined bytes already in the buffer count as begun.
    if (buffer_.size() > 0) {
      SetBusy(true);
      DoReadHeader();
      return;
    }
    stream_.expires_after(nanoseconds(limits.idle_ns));
    stream_.async_read_some(buffer_.prepare(kReadBufferBytes),
                            [self = shared_from_this()](beast::error_code ec, size_t n) {
                              if (ec) return self->CloseNow();
                              self->buffer_.commit(n);
                              self->SetBusy(true);
                              self->DoReadHeader();
                            });
  }

  void DoReadHeader() {
    reading_since_mono_ns_ = base::MonoNowNs();
    stream_.expires_after(nanoseconds(core_->options.limits.body_wait_ns));
    bhttp::async_read_header(stream_, buffer_, *parser_,
                             [self = shared_from_this()](beast::error_code ec, size_t) { self->OnHeader(ec); });
  }

  void OnHeader(beast::error_code ec) {
    if (ec == bhttp::error::header_limit) return Refuse(431, "the request header is over the limit", false);
    if (ec == bhttp::error::body_limit) return RefuseLargeBody();
    if (ec == bhttp::error::end_of_stream || ec == bhttp::error::partial_message) return CloseNow();
    if (ec && ec.category() == bhttp::make_error_code(bhttp::error::bad_target).category()) {
      core_->options.loss->Add(Loss::kBodyInvalid);
      return Refuse(400, "not a valid HTTP request", false);
    }
    if (ec) return CloseNow();
    const auto& head = parser_->get();
    request_.method = std::string(head.method_string());
    std::string target(head.target());
    request_.path = target.substr(0, target.find_first_of("?#"));
    request_.content_type = std::string(head[bhttp::field::content_type]);
    request_.content_encoding = std::string(head[bhttp::field::content_encoding]);
    auto length = parser_->content_length();
    if (length && *length > core_->options.limits.body_bytes) return RefuseLargeBody();
    if (beast::iequals(head[bhttp::field::expect], "100-continue")) return SendContinue();
    ReadBody();
  }

  void SendContinue() {
    continue_.emplace(bhttp::status::continue_, 11);
    bhttp::async_write(stream_, *continue_, [self = shared_from_this()](beast::error_code ec, size_t) {
      if (ec) return self->CloseNow();
      self->ReadBody();
    });
  }

  void ReadBody() {
    stream_.expires_after(nanoseconds(core_->options.limits.body_wait_ns));
    parser_->eager(true);
    ReadMore();
  }

  void ReadMore() {
    if (parser_->is_done()) return OnBody({});
    bhttp::async_read_some(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code ec, size_t) {
      if (ec || self->reading_since_mono_ns_ == 0) return self->OnBody(ec);
      self->CountBody(self->parser_->get().body().size());
      self->core_->LimitAllBodies();
      if (self->reading_since_mono_ns_ != 0) self->ReadMore();
    });
  }

  void OnBody(beast::error_code ec) {
    if (reading_since_mono_ns_ == 0) return CloseNow();  // closed as the slowest
    if (ec == bhttp::error::body_limit) return RefuseLargeBody();
    if (ec) {
      // The body was cut short; whoever sent it is gone or broken, an answer is tried all the same.
      core_->options.loss->Add(Loss::kBodyInvalid);
      return Refuse(400, "the body was cut short", false);
    }
    auto decoded =
        Decode(request_.content_encoding, std::move(parser_->get().body()), core_->options.limits.decompressed_bytes);
    if (!decoded.ok()) {
      bool large = decoded.error().code == Code::kResourceExhausted;
      core_->options.loss->Add(large ? Loss::kBodyTooLarge : Loss::kBodyInvalid);
      int status = large ? 413 : decoded.error().code == Code::kUnsupported ? 415 : 400;
      return Refuse(status, decoded.error().message, parser_->get().keep_alive());
    }
    request_.body = std::move(*decoded);
    reading_since_mono_ns_ = 0;
    CountBody(0);
    Answer(core_->handler(request_), parser_->get().keep_alive());
  }

  void RefuseLargeBody() {
    core_->options.loss->Add(Loss::kBodyTooLarge);
    Refuse(413, "the body is over the limit of " + std::to_string(core_->options.limits.body_bytes) + " bytes", false);
  }

  void Refuse(int status, const std::string& message, bool keep_alive) {
    Answer(core_->refusal(status, message, request_), keep_alive);
  }

  void Answer(Response answer, bool keep_alive) {
    keep_alive = keep_alive && !core_->stopping;
    reading_since_mono_ns_ = 0;
    CountBody(0);
    response_.emplace(static_cast<bhttp::status>(answer.status), 11);
    if (!answer.content_type.empty()) response_->set(bhttp::field::content_type, answer.content_type);
    response_->keep_alive(keep_alive);
    response_->body() = std::move(answer.body);
    response_->prepare_payload();
    stream_.expires_after(nanoseconds(core_->options.limits.body_wait_ns));
    bhttp::async_write(stream_, *response_, [self = shared_from_this(), keep_alive](beast::error_code ec, size_t) {
      self->SetBusy(false);
      self->answered_ = true;
      if (ec) return self->CloseNow();
      if (!keep_alive) return self->Linger();
      self->ReadHeader();
    });
  }

  // Closing while the peer still sends would reset the connection and take the answer with it.
  void Linger() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    buffer_.clear();
    stream_.expires_after(core_->stopping ? milliseconds(50) : kLinger);
    DiscardMore();
  }

  void DiscardMore() {
    stream_.async_read_some(buffer_.prepare(kReadBufferBytes),
                            [self = shared_from_this()](beast::error_code ec, size_t n) {
                              self->discarded_bytes_ += n;
                              if (ec || self->discarded_bytes_ > kLingerBytesMax) return self->CloseNow();
                              self->DiscardMore();
                            });
  }

  beast::tcp_stream stream_;
  std::shared_ptr<Server::Core> core_;
  beast::flat_buffer buffer_;
  std::optional<bhttp::request_parser<bhttp::string_body>> parser_;
  std::optional<bhttp::response<bhttp::empty_body>> continue_;
  std::optional<bhttp::response<bhttp::string_body>> response_;
  Request request_;
  bool busy_ = false;
  bool answered_ = false;  // a request, at least
  int64_t reading_since_mono_ns_ = 0;
  size_t body_bytes_ = 0;
  int64_t idle_since_mono_ns_ = base::MonoNowNs();
  size_t discarded_bytes_ = 0;
  uint16_t peer_port_ = 0;
  uint64_t number_ = 0;
};

bool Server::Core::MakeRoom() {
  std::shared_ptr<Session> oldest;
  for (auto it = sessions.begin(); it != sessions.end();) {
    auto session = it->lock();
    if (!session) {
      it = sessions.erase(it);
      continue;
    }
    bool better = session->IsIdle() && (!oldest || session->idle_since_mono_ns() < oldest->idle_since_mono_ns());
    if (better) oldest = session;
    ++it;
  }
  if (session_count < options.limits.connections) return true;
  if (!oldest) return CloseSlowest();
  oldest->CloseNow();
  return true;
}

bool Server::Core::CloseSlowest() {
  std::shared_ptr<Session> slowest;
  for (const auto& weak : sessions) {
    auto session = weak.lock();
    if (!session || session->reading_since_mono_ns() == 0) continue;
    if (!slowest || session->reading_since_mono_ns() < slowest->reading_since_mono_ns()) slowest = session;
  }
  if (!slowest || base::MonoNowNs() - slowest->reading_since_mono_ns() < options.limits.slow_ns) return false;
  slowest->CloseSlow();
  return true;
}

// Whoever has been sending for the longest makes room, however fast it is: the memory is needed.
void Server::Core::LimitAllBodies() {
  while (all_bodies_bytes > options.limits.all_bodies_bytes) {
    std::shared_ptr<Session> slowest;
    for (const auto& weak : sessions) {
      auto session = weak.lock();
      if (!session || session->body_bytes() == 0) continue;
      if (!slowest || session->reading_since_mono_ns() < slowest->reading_since_mono_ns()) slowest = session;
    }
    if (!slowest) return;
    slowest->CloseSlow();
  }
}

// What a handler throws (out of memory, above all) costs its connection and no more.
void Server::Core::Run() {
  while (true) {
    try {
      io.run();
      return;
    } catch (const std::exception& e) {
      options.loss->Add(Loss::kBodyInvalid);
      base::LogError("a request could not be served: {}", e.what());
    }
  }
}

void Server::Core::Accept() {
  if (stopping) return;
  if (session_count < options.limits.connections) return AcceptOne();
  // After the reads that are done by now: who has sent a request is not idle.
  asio::post(io, [self = shared_from_this()] { self->AcceptWhenThereIsRoom(); });
}

void Server::Core::AcceptWhenThereIsRoom() {
  if (stopping) return;
  if (!MakeRoom()) {
    accept_timer.expires_after(kAcceptPause);
    accept_timer.async_wait([self = shared_from_this()](beast::error_code ec) {
      if (!ec) self->Accept();
    });
    return;
  }
  AcceptOne();
}

void Server::Core::AcceptOne() {
  acceptor.async_accept([self = shared_from_this()](beast::error_code ec, tcp::socket socket) {
    if (self->stopping || ec == asio::error::operation_aborted) return;
    if (!ec) {
      beast::error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      auto session = std::make_shared<Session>(std::move(socket), self);
      self->sessions.push_back(session);
      session->Start();
      if (self->sessions.size() > 2 * self->options.limits.connections) {
        self->sessions.remove_if([](const auto& weak) { return weak.expired(); });
      }
      return self->Accept();
    }
    // Out of descriptors, for example: try again a little later instead of spinning.
    base::LogWarning("cannot accept a connection: {}", ec.message());
    self->accept_timer.expires_after(kAcceptPause);
    self->accept_timer.async_wait([self](beast::error_code wait_ec) {
      if (!wait_ec) self->Accept();
    });
  });
}

void Server::Core::Tick() {
  tick_timer.expires_after(options.tick);
  tick_timer.async_wait([self = shared_from_this()](beast::error_code ec) {
    if (ec || self->stopping) return;
    self->on_tick();
    self->Tick();
  });
}

base::Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Handler handler, Refusal refusal,
                                                    std::function<void()> on_tick) {
  auto core = std::make_shared<Core>(options);
  if (!core->options.loss) core->options.loss = &base::LossCounters::Global();
  core->handler = std::move(handler);
  core->refusal = std::move(refusal);
  core->on_tick = std::move(on_tick);
  beast::error_code ec;
  auto address = asio::ip::make_address(options.address, ec);
  if (ec) return Error{Code::kInvalidArgument, "not an address: " + options.address};
  tcp::endpoint endpoint(address, options.port);
  core->acceptor.open(endpoint.protocol(), ec);
  // Without SO_REUSEADDR a port in TIME_WAIT of an earlier run would look taken.
  if (!ec) core->acceptor.set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec) core->acceptor.bind(endpoint, ec);
  if (!ec) core->acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (ec == asio::error::address_in_use) {
    return Error{Code::kUnavailable,
                 "port " + std::to_string(options.port) + " is taken by another program; choose another one",
                 ec.value()};
  }
  if (ec) return base::OsError(ec.value(), "cannot listen on " + options.address);
  core->port = core->acceptor.local_endpoint(ec).port();
  core->last_done_mono_ns = base::MonoNowNs();
  core->Accept();
  core->Tick();
  core->thread = std::thread([core] { core->Run(); });
  return std::unique_ptr<Server>(new Server(core));
}

Server::Server(std::shared_ptr<Core> core) : core_(std::move(core)) {}
Server::~Server() {
  Stop(milliseconds(0), [] {});
}
uint16_t Server::port() const { return core_->port; }

void Server::Run(std::function<void()> task) {
  if (core_->joined) return;
  std::promise<void> done;
  asio::post(core_->io, [&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

void Server::Quiesce(milliseconds window, milliseconds quiet) {
  if (core_->joined) return;
  int64_t start_mono_ns = base::MonoNowNs();
  int64_t end_mono_ns = start_mono_ns + nanoseconds(window).count();
  int64_t quiet_ns = nanoseconds(quiet).count();
  while (true) {
    int64_t now_mono_ns = base::MonoNowNs();
    int64_t since_mono_ns = std::max(start_mono_ns, core_->last_done_mono_ns.load());
    if (now_mono_ns >= end_mono_ns) return;
    if (core_->in_flight == 0 && now_mono_ns - since_mono_ns >= quiet_ns) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

void Server::Stop(milliseconds window, std::function<void()> last) {
  if (core_->joined) return;
  Run([this] {
    core_->stopping = true;
    beast::error_code ignored;
    core_->acceptor.close(ignored);
    core_->accept_timer.cancel();
    core_->tick_timer.cancel();
    for (auto& weak : core_->sessions) {
      auto session = weak.lock();
      if (session && !session->busy()) session->CloseNow();
    }
  });
  int64_t end_mono_ns = base::MonoNowNs() + nanoseconds(window).count();
  while (core_->session_count > 0 && base::MonoNowNs() < end_mono_ns) std::this_thread::sleep_for(milliseconds(5));
  Run([this, &last] {
    last();
    core_->work.reset();
    for (auto& weak : core_->sessions) {
      if (auto session = weak.lock()) session->CloseNow();
    }
  });
  core_->thread.join();  // every operation is cancelled by now: run() ends by itself and no handler keeps a session
  core_->joined = true;
}

}  // namespace tailspan::collect::http
