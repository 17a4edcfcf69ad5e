// The only file that includes Beast: it compiles slowly, and its exceptions end here.
#include "collect/http/server.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <future>
#include <initializer_list>
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
// Until a body comes: most of many connections have none.
constexpr size_t kHeaderBufferBytes = 4u << 10;
constexpr size_t kLingerBytesMax = 256u << 20;
constexpr milliseconds kLinger{1000};
constexpr milliseconds kAcceptPause{20};

// Asio's sockets are inherited by an exec: the recorded command would keep the port open when tailspan is gone, and its
// exporters would wait for answers instead of being refused.
void CloseOnExec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

// Half of the descriptors that this process may have, at most: the rest is for probes, rings and the recording.
size_t ConnectionsMax(size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  return std::min<size_t>(wanted, std::max<rlim_t>(limit.rlim_cur / 2, 1));
}

model::SocketAddress AddressOf(const tcp::endpoint& end) {
  if (end.address().is_v4())
    return model::MakeSocketAddress(AF_INET, end.address().to_v4().to_bytes().data(), end.port());
  return model::MakeSocketAddress(AF_INET6, end.address().to_v6().to_bytes().data(), end.port());
}

// The path of a target as one writes it to a proxy, http://HOST/PATH; any other is left as it is.
std::string_view WithoutAuthority(std::string_view target) {
  size_t scheme = target.find("://");
  if (target.empty() || target.front() == '/' || scheme == std::string_view::npos) return target;
  size_t path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? "/" : target.substr(path);
}

}  // namespace

class Session;

// What a connection is doing, as far as it decides who makes room for others.
enum class Stage { kNew, kIdle, kReading, kAnswering };
// The connections at one stage, who has been there for the longest first.
using Queue = std::list<Session*>;

struct Server::Core : std::enable_shared_from_this<Server::Core> {
  explicit Core(ServerOptions o) : options(std::move(o)), acceptor(io), accept_timer(io), tick_timer(io) {}

  void Accept();
  void AcceptWhenThereIsRoom();
  void AcceptOne();
  void AcceptLater();
  void NotAccepted(beast::error_code ec);
  void Tick();
  void Run();
  bool CloseOne();  // to make room for another connection; false when none can be closed
  void CloseAll(std::initializer_list<Stage> stages);
  void LimitAllBodies();
  Queue& At(Stage stage) { return queues[static_cast<size_t>(stage)]; }

  ServerOptions options;
  Handler handler;
  Refusal refusal;
  std::function<void()> on_tick;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};  // until the last task has run
  tcp::acceptor acceptor;
  asio::steady_timer accept_timer;
  asio::steady_timer tick_timer;
  std::array<Queue, 4> queues;  // each session stands in one of them while it lives
  std::atomic<size_t> session_count{0};
  size_t connections_max = 0;
  uint64_t last_session = 0;
  size_t all_bodies_bytes = 0;       // of the requests being read
  std::atomic<size_t> in_flight{0};  // requests whose header has begun to come and whose answer is not out
  std::atomic<int64_t> last_done_mono_ns{0};
  bool stopping = false;  // server thread only
  bool told_of_http2 = false, told_of_full = false;
  uint16_t port = 0;
  std::thread thread;
  bool joined = false;
};

// One connection. Reads a header, decides, reads the body, answers, and again.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, std::shared_ptr<Server::Core> core) : stream_(std::move(socket)), core_(std::move(core)) {
    buffer_.reserve(kHeaderBufferBytes);
    Queue& queue = core_->At(stage_);
    place_ = queue.insert(queue.end(), this);
    ++core_->session_count;
    number_ = ++core_->last_session;
    beast::error_code ignored;
    peer_ = AddressOf(stream_.socket().remote_endpoint(ignored));
    own_ = AddressOf(stream_.socket().local_endpoint(ignored));
  }
  ~Session() {
    SetBusy(false);
    CountBody(0);
    core_->At(stage_).erase(place_);
    --core_->session_count;
  }

  void Start() { ReadHeader(); }
  bool busy() const { return busy_; }
  int64_t since_mono_ns() const { return since_mono_ns_; }  // when it came to its stage
  size_t body_bytes() const { return body_bytes_; }
  // The answer is worth one try; whoever sends so slowly may not read either.
  void CloseSlow() {
    core_->options.loss->Add(Loss::kRequestTooSlow);
    constexpr std::string_view kAnswer =
        "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    beast::error_code ignored;
    stream_.socket().non_blocking(true, ignored);
    stream_.socket().write_some(asio::buffer(kAnswer), ignored);
    CountBody(0);
    CloseNow();
  }
  // Its operations end with an error soon, and with the last of them the session.
  void CloseNow() {
    closed_ = true;
    GoTo(Stage::kAnswering);  // it makes no more room
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
      core_->last_done_mono_ns = base::MonoNowNs();
    }
  }

  void GoTo(Stage stage) {
    if (stage == stage_) return;
    Queue& queue = core_->At(stage);
    queue.splice(queue.end(), core_->At(stage_), place_);
    stage_ = stage;
    since_mono_ns_ = base::MonoNowNs();
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
    request_.peer = peer_;
    request_.own = own_;
    request_.connection = number_;
    head_only_ = false;
    // Pipelined bytes already in the buffer count as begun.
    if (buffer_.size() > 0) {
      SetBusy(true);
      DoReadHeader();
      return;
    }
    stream_.expires_after(nanoseconds(limits.idle_ns));
    stream_.async_read_some(buffer_.prepare(buffer_.capacity()),
                            [self = shared_from_this()](beast::error_code ec, size_t n) {
                              if (ec || self->closed_) return self->CloseNow();
                              self->buffer_.commit(n);
                              self->SetBusy(true);
                              self->DoReadHeader();
                            });
  }

  void DoReadHeader() {
    GoTo(Stage::kReading);
    stream_.expires_after(nanoseconds(core_->options.limits.body_wait_ns));
    bhttp::async_read_header(stream_, buffer_, *parser_,
                             [self = shared_from_this()](beast::error_code ec, size_t) { self->OnHeader(ec); });
  }

  void OnHeader(beast::error_code ec) {
    if (closed_) return CloseNow();  // as the slowest
    if (ec == bhttp::error::header_limit) return Refuse(431, "the request header is over the limit", false);
    if (ec == bhttp::error::body_limit) return RefuseLargeBody();
    if (ec == bhttp::error::end_of_stream || ec == bhttp::error::partial_message) return CloseNow();
    if (ec == bhttp::error::bad_version) return RefuseVersion();
    if (ec && ec.category() == bhttp::make_error_code(bhttp::error::bad_target).category()) {
      core_->options.loss->Add(Loss::kBodyInvalid);
      return Refuse(400, "not a valid HTTP request", false);
    }
    if (ec) return CloseNow();
    const auto& head = parser_->get();
    head_only_ = head.method() == bhttp::verb::head;
    request_.method = head_only_ ? "GET" : std::string(head.method_string());
    std::string target(head.target());
    std::string_view path = WithoutAuthority(target);
    request_.path = path.substr(0, path.find_first_of("?#"));
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
    buffer_.reserve(kReadBufferBytes);
    bhttp::async_read_some(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code ec, size_t) {
      if (ec || self->closed_) return self->OnBody(ec);
      self->CountBody(self->parser_->get().body().size());
      self->core_->LimitAllBodies();
      if (!self->closed_) self->ReadMore();
    });
  }

  void OnBody(beast::error_code ec) {
    if (closed_) return CloseNow();  // as the slowest
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
    CountBody(0);
    Answer(core_->handler(request_), parser_->get().keep_alive());
  }

  void RefuseLargeBody() {
    core_->options.loss->Add(Loss::kBodyTooLarge);
    Refuse(413, "the body is over the limit of " + std::to_string(core_->options.limits.body_bytes) + " bytes", false);
  }

  void RefuseVersion() {
    core_->options.loss->Add(Loss::kBodyInvalid);
    if (!std::exchange(core_->told_of_http2, true)) {
      base::LogWarning(
          "a client speaks HTTP/2, most likely OTLP over gRPC, which is not received: have it export OTLP over HTTP "
          "(http/protobuf)");
    }
    Refuse(400, "HTTP/1.1 is spoken here: export OTLP over HTTP, not gRPC", false);
  }

  void Refuse(int status, const std::string& message, bool keep_alive) {
    Answer(core_->refusal(status, message, request_), keep_alive);
  }

  void Answer(Response answer, bool keep_alive) {
    keep_alive = keep_alive && !core_->stopping;
    GoTo(Stage::kAnswering);
    CountBody(0);
    response_.emplace(static_cast<bhttp::status>(answer.status), 11);
    if (!answer.content_type.empty()) response_->set(bhttp::field::content_type, answer.content_type);
    response_->keep_alive(keep_alive);
    response_->body() = std::move(answer.body);
    response_->prepare_payload();
    if (head_only_) response_->body().clear();  // its length is told all the same
    stream_.expires_after(nanoseconds(core_->options.limits.body_wait_ns));
    bhttp::async_write(stream_, *response_, [self = shared_from_this(), keep_alive](beast::error_code ec, size_t) {
      self->SetBusy(false);
      if (ec) return self->CloseNow();
      self->GoTo(Stage::kIdle);
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
                              bool enough = self->discarded_bytes_ > kLingerBytesMax;
                              if (ec || self->closed_ || enough) return self->CloseNow();
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
  bool closed_ = false;  // before its time; what still completes is not gone on with
  bool head_only_ = false;
  Stage stage_ = Stage::kNew;
  Queue::iterator place_;
  int64_t since_mono_ns_ = base::MonoNowNs();
  size_t body_bytes_ = 0;
  size_t discarded_bytes_ = 0;
  model::SocketAddress peer_, own_;
  uint64_t number_ = 0;
};

bool Server::Core::CloseOne() {
  auto first = [this](Stage stage) { return At(stage).empty() ? nullptr : At(stage).front(); };
  int64_t slow_mono_ns = base::MonoNowNs() - options.limits.slow_ns;
  Session* idle = first(Stage::kIdle);
  // A new connection is given the time of a slow request to begin.
  Session* fresh = first(Stage::kNew);
  if (fresh && fresh->since_mono_ns() <= slow_mono_ns && (!idle || fresh->since_mono_ns() < idle->since_mono_ns())) {
    idle = fresh;
  }
  if (idle) {
    idle->CloseNow();
    return true;
  }
  Session* slowest = first(Stage::kReading);
  if (!slowest || slowest->since_mono_ns() > slow_mono_ns) return false;
  slowest->CloseSlow();
  return true;
}

void Server::Core::CloseAll(std::initializer_list<Stage> stages) {
  for (Stage stage : stages) {
    for (Session* session : Queue(At(stage))) session->CloseNow();
  }
}

// Whoever has been sending for the longest makes room, however fast it is: the memory is needed.
void Server::Core::LimitAllBodies() {
  while (all_bodies_bytes > options.limits.all_bodies_bytes) {
    Queue& reading = At(Stage::kReading);
    auto slowest = std::find_if(reading.begin(), reading.end(), [](Session* s) { return s->body_bytes() > 0; });
    if (slowest == reading.end()) return;
    (*slowest)->CloseSlow();
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
  if (session_count < connections_max) return AcceptOne();
  // After the reads that are done by now: who has sent a request is not idle.
  asio::post(io, [self = shared_from_this()] { self->AcceptWhenThereIsRoom(); });
}

void Server::Core::AcceptWhenThereIsRoom() {
  if (stopping) return;
  if (session_count < connections_max || CloseOne()) return AcceptOne();
  AcceptLater();
}

void Server::Core::AcceptLater() {
  accept_timer.expires_after(kAcceptPause);
  accept_timer.async_wait([self = shared_from_this()](beast::error_code ec) {
    if (!ec) self->Accept();
  });
}

void Server::Core::AcceptOne() {
  acceptor.async_accept([self = shared_from_this()](beast::error_code ec, tcp::socket socket) {
    if (self->stopping || ec == asio::error::operation_aborted) return;
    if (ec) return self->NotAccepted(ec);
    try {
      CloseOnExec(socket.native_handle());
      beast::error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      std::make_shared<Session>(std::move(socket), self)->Start();
    } catch (const std::exception& e) {  // the others are accepted all the same
      base::LogError("a connection could not be served: {}", e.what());
    }
    self->Accept();
  });
}

// Out of descriptors, for example: an older connection has to make room, else a little later instead of spinning.
void Server::Core::NotAccepted(beast::error_code ec) {
  bool full = ec == asio::error::no_descriptors || ec == asio::error::no_memory || ec == asio::error::no_buffer_space;
  if (full && CloseOne()) return Accept();
  if (!std::exchange(told_of_full, true)) base::LogWarning("cannot accept a connection: {}", ec.message());
  AcceptLater();
}

void Server::Core::Tick() {
  tick_timer.expires_after(options.tick);
  tick_timer.async_wait([self = shared_from_this()](beast::error_code ec) {
    if (ec || self->stopping) return;
    self->Tick();  // first: it goes on whatever happens in this one
    self->on_tick();
  });
}

base::Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Handler handler, Refusal refusal,
                                                    std::function<void()> on_tick) {
  auto core = std::make_shared<Core>(options);
  core->connections_max = ConnectionsMax(options.limits.connections);
  if (!core->options.loss) core->options.loss = &base::LossCounters::Global();
  core->handler = std::move(handler);
  core->refusal = std::move(refusal);
  core->on_tick = std::move(on_tick);
  beast::error_code ec;
  auto address = asio::ip::make_address(options.address, ec);
  if (ec) return Error{Code::kInvalidArgument, "not an address: " + options.address};
  tcp::endpoint endpoint(address, options.port);
  core->acceptor.open(endpoint.protocol(), ec);
  if (!ec) CloseOnExec(core->acceptor.native_handle());
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
    try {
      task();
    } catch (const std::exception& e) {  // whoever waits must not wait for ever
      base::LogError("the receiver failed: {}", e.what());
    }
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
    core_->CloseAll({Stage::kNew, Stage::kIdle});
  });
  int64_t end_mono_ns = base::MonoNowNs() + nanoseconds(window).count();
  while (core_->session_count > 0 && base::MonoNowNs() < end_mono_ns) std::this_thread::sleep_for(milliseconds(5));
  Run([this, &last] {
    core_->work.reset();
    core_->CloseAll({Stage::kNew, Stage::kIdle, Stage::kReading, Stage::kAnswering});
    last();  // nothing is taken in any more
  });
  core_->thread.join();  // every operation is cancelled by now: run() ends by itself and no handler keeps a session
  core_->joined = true;
}

}  // namespace tailspan::collect::http
