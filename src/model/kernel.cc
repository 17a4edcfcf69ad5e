#include "model/kernel.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

namespace tailspan::model {

std::string ToText(const SocketAddress& address) {
  if (address.family == 0) return {};
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.family, address.bytes.data(), text, sizeof text);
  return address.family == AF_INET6 ? fmt::format("[{}]:{}", text, address.port)
                                    : fmt::format("{}:{}", text, address.port);
}

SocketAddress MakeSocketAddress(int family, const uint8_t* bytes, uint16_t port) {
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  SocketAddress address;
  if (family != AF_INET && family != AF_INET6) return address;
  const bool mapped = family == AF_INET6 && std::equal(std::begin(kMapped), std::end(kMapped), bytes);
  address.family = mapped ? AF_INET : static_cast<uint8_t>(family);
  if (mapped) bytes += sizeof kMapped;
  std::copy_n(bytes, address.family == AF_INET ? 4 : 16, address.bytes.begin());
  address.port = port;
  return address;
}

Cause CauseOfClass(WaitClass wait_class) {
  switch (wait_class) {
    case WaitClass::kRunQueue:
      return Cause::kRunQueue;
    case WaitClass::kThrottled:
      return Cause::kCpuThrottled;
    case WaitClass::kGil:
      return Cause::kGil;
    case WaitClass::kFutex:
      return Cause::kLock;
    case WaitClass::kSocketRecv:
      return Cause::kNetRecv;
    case WaitClass::kSocketSend:
      return Cause::kNetSend;
    case WaitClass::kConnect:
      return Cause::kNetConnect;
    case WaitClass::kPipe:
      return Cause::kIpc;
    case WaitClass::kSleep:
      return Cause::kSleep;
    case WaitClass::kPageFault:
      return Cause::kPageFault;
    case WaitClass::kDiskRead:
      return Cause::kDiskRead;
    case WaitClass::kDiskWrite:
      return Cause::kDiskWrite;
    case WaitClass::kChild:
      return Cause::kChildProcess;
    case WaitClass::kStopped:
      return Cause::kStopped;
    case WaitClass::kNone:
    case WaitClass::kPoll:
    case WaitClass::kOther:
    case WaitClass::kCount:
      return Cause::kUnexplained;
  }
  return Cause::kUnexplained;
}

}  // namespace tailspan::model
