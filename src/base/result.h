// Errors of this project.
//
// Policy: a function that can fail for a reason outside the program returns Result<T> (or Status) and never throws;
// third-party exceptions are caught in the adapter that makes the call. Context is added once a layer, by WithContext.
// Only the edges (cli, serve) turn a code into an exit status or a protocol answer. A broken invariant aborts
// (TAILSPAN_CHECK); input never does.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace tailspan::base {

enum class Code {
  kInvalidArgument,    // the caller's or the user's input is wrong
  kNotFound,           // a file, process, operation or trace that is not there
  kPermission,         // needs a privilege that this process lacks
  kUnsupported,        // the host or the version cannot do it
  kUnavailable,        // a peer or a resource is away for now
  kResourceExhausted,  // a named limit, disk or memory
  kDataLoss,           // what was read is damaged or of another version
  kInternal,
};

const char* CodeName(Code code);

struct Error {
  Code code = Code::kInternal;
  std::string message;  // one line: what happened and what to do
  int os_errno = 0;     // 0 when the operating system had no part in it

  Error WithContext(const std::string& context) &&;
};

// Error from errno, "message: strerror". Maps EPERM/EACCES, ENOENT and ENOSPC to their codes.
Error OsError(int os_errno, std::string message);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const T& value() const& { return std::get<0>(state_); }
  T& value() & { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};

[[noreturn]] inline void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tailspan: broken invariant: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace tailspan::base

#define TAILSPAN_CHECK(condition) \
  ((condition) ? void(0) : ::tailspan::base::CheckFailed(#condition, __FILE__, __LINE__))
