// A request and an answer as the routes see them: no third-party type leaves http/.
#pragma once

#include <cstdint>
#include <string>

namespace tailspan::collect::http {

struct Request {
  std::string method;        // upper case
  std::string path;          // without the query
  std::string content_type;  // as sent, parameters included
  std::string content_encoding;
  std::string body;
  uint16_t peer_port = 0;  // the client's end of the connection
  uint16_t own_port = 0;
  uint64_t connection = 0;  // a number that no other connection of this server has
};

struct Response {
  int status = 200;
  std::string content_type;
  std::string body;
};

}  // namespace tailspan::collect::http
