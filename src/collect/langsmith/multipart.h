// Splits a multipart/form-data body into its parts. Takes hostile bytes; the parts point into the body.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tailspan::collect::langsmith {

struct Part {
  std::string_view name;  // of its Content-Disposition
  std::string_view data;
};

struct Multipart {
  std::vector<Part> parts;  // the whole ones, in order; also of a body that is not whole
  bool whole = false;       // the closing delimiter was there and nothing was malformed
  std::string problem;      // when not whole
};

// The boundary parameter of a Content-Type, empty when there is none.
std::string BoundaryOf(std::string_view content_type);

Multipart SplitMultipart(std::string_view body, std::string_view boundary, size_t parts_max);

}  // namespace tailspan::collect::langsmith
