// A request and an answer as the routes see them: no third-party type leaves http/.
#pragma once

#include <cstdint>
#include <string>

#include "model/kernel.h"

namespace tailspan::collect::http {

struct Request {
  std::string method;        // upper case
  std::string path;          // without the query
  std::string content_type;  // as sent, parameters included
  std::string content_encoding;
  std::string body;
  model::SocketAddress peer = {}, own = {};  // the two ends of the connection
  uint64_t connection = 0;                   // a number that no other connection of this server has
};

struct Response {
  int status = 200;
  std::string content_type;
  std::string body;
};

}  // namespace tailspan::collect::http
