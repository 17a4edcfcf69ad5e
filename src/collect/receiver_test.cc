// The receiver as clients meet it: over a real socket.
#include "collect/receiver.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <mutex>
#include <thread>

#include "collect/otlp/golden.h"
#include "collect/text.h"

namespace tailspan::collect {
namespace {

using base::Loss;
using model::Span;

// One connection of a client that says exactly what the test wants.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval patience{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;

  void Send(std::string_view text) {
    while (!text.empty()) {
      ssize_t n = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // the server has answered and closed
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  // The next answer's status line and fields alone.
  std::string ReadHead() {
    while (true) {
      size_t head = buffer_.find("\r\n\r\n");
      if (head != std::string::npos) {
        std::string text = buffer_.substr(0, head);
        buffer_.erase(0, head + 4);
        return text;
      }
      char chunk[4096];
      ssize_t n = recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) return "closed";
      buffer_.append(chunk, static_cast<size_t>(n));
    }
  }
  void HalfClose() { shutdown(fd_, SHUT_WR); }

  // The next answer: "STATUS body".
  std::string Read() {
    while (true) {
      size_t head = buffer_.find("\r\n\r\n");
      if (head != std::string::npos) {
        std::string lower = Lower(buffer_.substr(0, head));
        size_t at = lower.find("content-length:");
        size_t length = at == std::string::npos ? 0 : std::stoul(lower.substr(at + 15));
        if (buffer_.size() >= head + 4 + length) {
          std::string answer = buffer_.substr(9, 3) + " " + buffer_.substr(head + 4, length);
          buffer_.erase(0, head + 4 + length);
          return answer;
        }
      }
      char chunk[4096];
      ssize_t n = recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) return "closed";
      buffer_.append(chunk, static_cast<size_t>(n));
    }
  }

 private:
  int fd_;
  std::string buffer_;
};

std::string Post(const std::string& path, const std::string& type, const std::string& body,
                 const std::string& headers = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

std::string Chunked(const std::string& path, const std::string& type, const std::string& body) {
  std::string out =
      "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: " + type + "\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < body.size(); at += 100) {
    std::string part = body.substr(at, 100);
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", part.size());
    out += size + part + "\r\n";
  }
  return out + "0\r\n\r\n";
}

std::string Gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

constexpr char kProtobuf[] = "application/x-protobuf";
constexpr char kJson[] = "application/json";
constexpr char kRunBody[] =
    R"({"id":"01a22db0-786f-7370-98d1-a5dd2698d506","name":"r","run_type":"chain","start_time":1796061665})";

class ReceiverTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(DecodeHex(otlp::kGoldenHex, &golden_));
    options_.loss = &loss_;
    options_.limits.body_bytes = 100'000;
    options_.limits.decompressed_bytes = 1'000'000;
    options_.limits.connections = 4;
  }
  void Start() {
    auto receiver = Receiver::Start(options_, [this](std::vector<Span>&& spans) {
      EXPECT_FALSE(spans.empty());
      std::lock_guard lock(mutex_);
      std::move(spans.begin(), spans.end(), std::back_inserter(spans_));
    });
    ASSERT_TRUE(receiver.ok()) << receiver.error().message;
    receiver_ = std::move(*receiver);
  }
  std::string Ask(const std::string& request) {
    Client client(receiver_->port());
    client.Send(request);
    return client.Read();
  }
  size_t Count() {
    std::lock_guard lock(mutex_);
    return spans_.size();
  }

  std::string golden_;
  base::LossCounters loss_;
  ReceiverOptions options_;
  std::mutex mutex_;
  std::vector<Span> spans_;
  std::unique_ptr<Receiver> receiver_;
};

TEST_F(ReceiverTest, OnePortTakesEveryRouteAndFormat) {
  Start();
  for (const char* path : {"/v1/traces", "/otel/v1/traces", "/otel", "/v1/traces?x=1", "/api/v1/otel/v1/traces"}) {
    EXPECT_EQ(Ask(Post(path, kProtobuf, golden_)), "200 ") << path;
  }
  EXPECT_EQ(Ask(Post("/v1/traces", "application/json; charset=utf-8", otlp::kGoldenJson)), "200 {}");
  EXPECT_EQ(Ask(Post("/v1/traces", kProtobuf, Gzip(golden_), "Content-Encoding: gzip\r\n")), "200 ");
  EXPECT_EQ(Ask(Chunked("/v1/traces", kProtobuf, golden_)), "200 ");
  EXPECT_EQ(Count(), 8u);
  EXPECT_EQ(Ask(Post("/v1/metrics", kProtobuf, "anything")), "200 ");
  EXPECT_EQ(Ask(Post("/v1/logs", kJson, "{}")), "200 {}");
  EXPECT_EQ(loss_.Get(Loss::kSignalNotStored), 2u);
  EXPECT_EQ(Ask("GET /info HTTP/1.1\r\nHost: x\r\n\r\n").substr(0, 4), "200 ");
  EXPECT_EQ(Ask("GET /api/v1/info HTTP/1.1\r\nHost: x\r\n\r\n").substr(0, 4), "200 ");
}

TEST_F(ReceiverTest, KeepsAConnectionAndAnswersPipelinedRequestsInOrder) {
  Start();
  Client client(receiver_->port());
  client.Send(Post("/v1/traces", kProtobuf, golden_) + Post("/v1/traces", kJson, "{") +
              Post("/v1/traces", kJson, "{}"));
  EXPECT_EQ(client.Read(), "200 ");
  EXPECT_EQ(client.Read().substr(0, 14), R"(400 {"code":3,)");
  EXPECT_EQ(client.Read(), "200 {}");
}

TEST_F(ReceiverTest, ContinuesWhenAsked) {
  Start();
  Client client(receiver_->port());
  std::string request = Post("/v1/traces", kProtobuf, golden_, "Expect: 100-continue\r\n");
  size_t head = request.find("\r\n\r\n") + 4;
  client.Send(request.substr(0, head));
  EXPECT_EQ(client.Read(), "100 ");
  client.Send(request.substr(head));
  EXPECT_EQ(client.Read(), "200 ");
}

TEST_F(ReceiverTest, AHeadIsAnsweredWithoutABody) {
  Start();
  Client client(receiver_->port());
  client.Send("HEAD /info HTTP/1.1\r\nHost: x\r\n\r\n" + Post("/v1/traces", kProtobuf, golden_));
  EXPECT_EQ(client.ReadHead().substr(9, 3), "200");
  EXPECT_EQ(client.Read(), "200 ");  // what follows is the next answer
}

TEST_F(ReceiverTest, ATargetMayNameTheHost) {
  Start();
  EXPECT_EQ(Ask(Post("http://127.0.0.1:4318/v1/traces?x=1", kProtobuf, golden_)), "200 ");
  EXPECT_EQ(Count(), 1u);
}

TEST_F(ReceiverTest, GrpcIsToldWhatIsSpokenHere) {
  Start();
  std::string answer = Ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_EQ(answer.substr(0, 3), "400");
  EXPECT_NE(answer.find("gRPC"), std::string::npos);
}

// A command that is started meanwhile must not keep the port open when tailspan is gone.
TEST_F(ReceiverTest, ItsSocketsAreClosedByAnExec) {
  Start();
  Client client(receiver_->port());
  client.Send(Post("/v1/traces", kProtobuf, golden_));
  EXPECT_EQ(client.Read(), "200 ");
  int sockets = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in name{};
    socklen_t size = sizeof name;
    bool own = getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 && name.sin_family == AF_INET &&
               ntohs(name.sin_port) == receiver_->port();
    if (!own) continue;
    ++sockets;
    EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC) << fd;
  }
  EXPECT_EQ(sockets, 2);  // the one that listens, and its end of the connection
}

TEST_F(ReceiverTest, WrongRequestsGetClearAnswersAndTheRestIsKept) {
  Start();
  EXPECT_EQ(Ask(Post("/v1/traces", "text/plain", golden_)).substr(0, 3), "415");
  EXPECT_EQ(Ask(Post("/v1/traces", kProtobuf, golden_.substr(0, 100))).substr(0, 6), std::string("400 \x08\x03", 6));
  EXPECT_EQ(Ask(Post("/v1/traces", kProtobuf, "x", "Content-Encoding: br\r\n")).substr(0, 3), "415");
  EXPECT_EQ(Ask(Post("/v1/traces", kProtobuf, Gzip(golden_).substr(0, 50), "Content-Encoding: gzip\r\n")).substr(0, 3),
            "400");
  EXPECT_EQ(Ask(Post("/nowhere", kJson, "{}")).substr(0, 3), "404");
  EXPECT_EQ(Ask("GET /v1/traces HTTP/1.1\r\nHost: x\r\n\r\n").substr(0, 3), "405");
  EXPECT_EQ(Ask("nonsense\r\n\r\n").substr(0, 3), "400");
  EXPECT_EQ(loss_.Get(Loss::kBodyInvalid), 5u);
  EXPECT_EQ(Ask(Post("/v1/traces", kProtobuf, golden_)), "200 ");
  EXPECT_EQ(Count(), 1u);
}

TEST_F(ReceiverTest, LimitsAnswer413AndCount) {
  Start();
  std::string large(options_.limits.body_bytes + 1, 'x');
  EXPECT_EQ(Ask(Post("/v1/traces", kProtobuf, large)).substr(0, 3), "413");
  EXPECT_EQ(Ask(Chunked("/v1/traces", kJson, large)).substr(0, 3), "413");
  std::string bomb = Gzip(std::string(20'000'000, '\0'));
  ASSERT_LT(bomb.size(), options_.limits.body_bytes);
  EXPECT_EQ(Ask(Post("/v1/traces", kProtobuf, bomb, "Content-Encoding: gzip\r\n")).substr(0, 3), "413");
  EXPECT_EQ(
      Ask(Post("/runs/multipart", "multipart/form-data; boundary=b", bomb, "Content-Encoding: gzip\r\n")).substr(0, 3),
      "413");
  EXPECT_EQ(loss_.Get(Loss::kBodyTooLarge), 4u);
  EXPECT_EQ(Ask("GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n").substr(0, 3), "431");
  EXPECT_EQ(Ask(Post("/v1/traces", kProtobuf, golden_)), "200 ");
}

TEST_F(ReceiverTest, ABodyCutByItsSenderIsCounted) {
  Start();
  {
    Client client(receiver_->port());
    std::string request = Post("/v1/traces", kProtobuf, golden_);
    client.Send(request.substr(0, request.size() - 5));
    client.HalfClose();
    EXPECT_EQ(client.Read().substr(0, 3), "400");
  }
  EXPECT_EQ(loss_.Get(Loss::kBodyInvalid), 1u);
  EXPECT_EQ(Count(), 0u);
}

TEST_F(ReceiverTest, ATakenPortIsSaidSo) {
  Start();
  ReceiverOptions second = options_;
  second.port = receiver_->port();
  auto receiver = Receiver::Start(second, [](std::vector<Span>&&) {});
  ASSERT_FALSE(receiver.ok());
  EXPECT_EQ(receiver.error().code, base::Code::kUnavailable);
  EXPECT_NE(receiver.error().message.find(std::to_string(second.port)), std::string::npos);
}

TEST_F(ReceiverTest, IdleConnectionsMakeRoomForNewOnes) {
  Start();
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 20; ++i) {
    idle.push_back(std::make_unique<Client>(receiver_->port()));
    idle.back()->Send(Post("/v1/traces", kProtobuf, golden_));
    EXPECT_EQ(idle.back()->Read(), "200 ") << i;
  }
  EXPECT_EQ(Count(), 20u);
}

TEST_F(ReceiverTest, SlowRequestsMakeRoomForOthers) {
  options_.limits.slow_ns = 50'000'000;
  Start();
  std::string request = Post("/v1/traces", kProtobuf, golden_);
  std::vector<std::unique_ptr<Client>> slow;
  for (size_t i = 0; i < 12; ++i) {  // half stop within their header, half within their body
    slow.push_back(std::make_unique<Client>(receiver_->port()));
    slow.back()->Send(request.substr(0, i % 2 ? 20 : request.size() - 5));
  }
  EXPECT_EQ(Ask(request), "200 ");
  EXPECT_EQ(slow.front()->Read(), "408 ");
  EXPECT_GE(loss_.Get(Loss::kRequestTooSlow), 8u);
}

TEST_F(ReceiverTest, BodiesTogetherAreBounded) {
  options_.limits.all_bodies_bytes = 150'000;
  options_.limits.connections = 8;
  Start();
  std::string large = Post("/v1/traces", kJson, std::string(90'000, ' ') + "{}");
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(std::make_unique<Client>(receiver_->port()));
    slow.back()->Send(large.substr(0, 80'000));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(slow.front()->Read(), "408 ");
  slow.back()->Send(large.substr(80'000));
  EXPECT_EQ(slow.back()->Read(), "200 {}");
  EXPECT_GE(loss_.Get(Loss::kRequestTooSlow), 3u);
  EXPECT_EQ(Ask(large), "200 {}");
}

TEST_F(ReceiverTest, OpenRunsAreHandedOnSoon) {
  Start();
  EXPECT_EQ(Ask(Post("/runs", kJson, kRunBody)).substr(0, 3), "201");
  EXPECT_EQ(Count(), 0u);
  for (int i = 0; i < 100 && Count() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(Count(), 1u);
  EXPECT_FALSE(spans_[0].complete);
  EXPECT_EQ(spans_[0].pid, getpid());
  receiver_->Stop();
  EXPECT_EQ(Count(), 1u);
}

TEST_F(ReceiverTest, StopGivesOutRunsThatNeverEnded) {
  Start();
  EXPECT_EQ(Ask(Post("/runs", kJson, kRunBody)).substr(0, 3), "201");
  EXPECT_EQ(Count(), 0u);
  receiver_->Drain(std::chrono::milliseconds(500));
  receiver_->Stop();
  receiver_->Stop();
  ASSERT_EQ(Count(), 1u);
  EXPECT_FALSE(spans_[0].complete);
}

TEST_F(ReceiverTest, StopFinishesARequestInFlight) {
  Start();
  Client client(receiver_->port());
  std::string request = Post("/v1/traces", kProtobuf, golden_);
  client.Send(request.substr(0, request.size() - 5));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the server has its header
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    client.Send(request.substr(request.size() - 5));
  });
  receiver_->Stop();
  late.join();
  EXPECT_EQ(client.Read(), "200 ");
  EXPECT_EQ(Count(), 1u);
}

TEST_F(ReceiverTest, DrainWaitsForTheLastExport) {
  Start();
  Client client(receiver_->port());
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    client.Send(Post("/v1/traces", kProtobuf, golden_));
  });
  receiver_->Drain();
  EXPECT_EQ(Count(), 1u);
  late.join();
}

TEST_F(ReceiverTest, ARunIsFromTheProcessThatSentIt) {
  Start();
  std::string ended = kRunBody;
  ended.insert(ended.size() - 1, R"(,"end_time":1796061666)");
  EXPECT_EQ(Ask(Post("/runs", kJson, ended)).substr(0, 3), "201");
  receiver_->Stop();
  ASSERT_EQ(Count(), 1u);
  EXPECT_EQ(spans_[0].pid, getpid());
}

TEST_F(ReceiverTest, HybridSpansAreNotCountedTwice) {
  Start();
  const std::string run =
      R"({"id":"01a22db0-786f-7370-98d1-a5dd2698d506","name":"r","run_type":"chain","start_time":1700000000,
          "end_time":1700000001})";
  const std::string span =
      R"({"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"01a22db0786f737098d1a5dd2698d506",
          "spanId":"1112131415161718","name":"r","startTimeUnixNano":"1700000000000000000",
          "endTimeUnixNano":"1700000001000000000","attributes":[
          {"key":"langsmith.span.kind","value":{"stringValue":"chain"}}]}]}]}]})";
  EXPECT_EQ(Ask(Post("/runs", kJson, run)).substr(0, 3), "201");
  EXPECT_EQ(Ask(Post("/otel/v1/traces", kJson, span)), "200 {}");
  receiver_->Stop();
  for (const Span& got : spans_) EXPECT_EQ(ToUuidText(got.uuid), "01a22db0-786f-7370-98d1-a5dd2698d506");
  EXPECT_EQ(loss_.Get(Loss::kSpanRepeated), 1u);
}

}  // namespace
}  // namespace tailspan::collect
