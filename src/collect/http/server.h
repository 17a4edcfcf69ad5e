// A small HTTP/1.1 server on loopback: one thread, one io_context, keep-alive, chunked bodies, Expect: 100-continue.
//
// The handler and the ticker run on the server's thread, never at once. Requests whose body or header is over a limit
// are answered 413 or 431 here and counted; everything else goes to the handler with its body already unpacked.
//
// Clients that take their time cannot shut others out: when all connections are taken, or all bodies together are over
// their limit, the longest idle connection is closed, else the one that has been sending its request for the longest,
// with a 408 (request_too_slow).
// Start, Quiesce and Stop are called from one other thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/loss.h"
#include "base/result.h"
#include "collect/http/message.h"
#include "collect/limits.h"

namespace tailspan::collect::http {

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: the kernel chooses
  Limits limits;
  base::LossCounters* loss = nullptr;
  std::chrono::milliseconds tick{100};
};

using Handler = std::function<Response(const Request&)>;
// What a refused request (status, message, path, content type) is answered with.
using Refusal = std::function<Response(int status, const std::string& message, const Request&)>;

class Server {
 public:
  // kUnavailable when the port is taken, with the port in the message.
  static base::Result<std::unique_ptr<Server>> Start(const ServerOptions& options, Handler handler, Refusal refusal,
                                                     std::function<void()> on_tick);
  ~Server();

  uint16_t port() const;
  // Serves on until no request has been in flight for `quiet`, at most for `window`.
  void Quiesce(std::chrono::milliseconds window, std::chrono::milliseconds quiet);
  // Stops accepting, lets requests in flight finish for at most `window`, runs `last` on the server's thread, joins.
  // Repeated calls do nothing.
  void Stop(std::chrono::milliseconds window, std::function<void()> last);
  // Runs `task` on the server's thread and waits for it.
  void Run(std::function<void()> task);

  struct Core;  // what the connections share; known to server.cc alone

 private:
  explicit Server(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

}  // namespace tailspan::collect::http
