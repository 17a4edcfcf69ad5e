#include "model/kernel.h"

#include <arpa/inet.h>
#include <fmt/format.h>

namespace tailspan::model {

std::string ToText(const SocketAddress& address) {
  if (address.family == 0) return {};
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.family, address.bytes.data(), text, sizeof text);
  return address.family == AF_INET6 ? fmt::format("[{}]:{}", text, address.port)
                                    : fmt::format("{}:{}", text, address.port);
}

}  // namespace tailspan::model
