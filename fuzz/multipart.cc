// The splitting of a multipart body: parts must lie inside it, in order.
#include "collect/langsmith/multipart.h"
#include "base/result.h"
#include "fuzz/target.h"

void tailspan::fuzz::RunOne(std::string_view input) {
  // The first line is the Content-Type.
  size_t end = input.find('\n');
  if (end == std::string_view::npos) return;
  std::string boundary = collect::langsmith::BoundaryOf(input.substr(0, end));
  std::string_view body = input.substr(end + 1);
  auto multipart = collect::langsmith::SplitMultipart(body, boundary, 64);
  const char* at = body.data();
  for (const auto& part : multipart.parts) {
    TAILSPAN_CHECK(part.data.data() >= at && part.data.data() + part.data.size() <= body.data() + body.size());
    at = part.data.data() + part.data.size();
  }
  TAILSPAN_CHECK(multipart.whole == multipart.problem.empty());
}
