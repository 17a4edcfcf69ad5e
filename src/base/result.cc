#include "base/result.h"

#include <cerrno>
#include <cstring>

namespace tailspan::base {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kPermission:
      return "permission denied";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kDataLoss:
      return "data loss";
    case Code::kInternal:
      return "internal error";
  }
  return "internal error";
}

Error Error::WithContext(const std::string& context) && {
  message = context + ": " + message;
  return std::move(*this);
}

Error OsError(int os_errno, std::string message) {
  Code code = Code::kInternal;
  switch (os_errno) {
    case EPERM:
    case EACCES:
      code = Code::kPermission;
      break;
    case ENOENT:
    case ESRCH:
      code = Code::kNotFound;
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
      code = Code::kResourceExhausted;
      break;
    case ENOSYS:
    case EOPNOTSUPP:
      code = Code::kUnsupported;
      break;
    case EADDRINUSE:
    case ECONNREFUSED:
    case EAGAIN:
      code = Code::kUnavailable;
      break;
    default:
      break;
  }
  return Error{code, std::move(message) + ": " + std::strerror(os_errno), os_errno};
}

}  // namespace tailspan::base
