// A request and an answer as the routes see them: no third-party type leaves http/.
#pragma once

#include <string>

namespace tailspan::collect::http {

struct Request {
  std::string method;        // upper case
  std::string path;          // without the query
  std::string content_type;  // as sent, parameters included
  std::string content_encoding;
  std::string body;
};

struct Response {
  int status = 200;
  std::string content_type;
  std::string body;
};

}  // namespace tailspan::collect::http
