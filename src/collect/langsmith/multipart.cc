#include "collect/langsmith/multipart.h"

#include <cstdint>
#include <cstring>

#include "collect/text.h"

namespace tailspan::collect::langsmith {
namespace {

constexpr size_t kBoundaryBytesMax = 200;  // the standard allows 70
constexpr size_t kHeaderBytesMax = 16u << 10;
constexpr size_t kNone = std::string_view::npos;

size_t Find(std::string_view text, std::string_view word, size_t from) {
  if (from > text.size()) return kNone;
  const void* at = memmem(text.data() + from, text.size() - from, word.data(), word.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : kNone;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// The value of `key=value` or `key="value"` among parameters joined by semicolons.
std::string_view Parameter(std::string_view header, std::string_view key) {
  size_t at = 0;
  while (at < header.size()) {
    size_t end = at;
    bool quoted = false;
    while (end < header.size() && (quoted || header[end] != ';')) {
      if (header[end] == '"') quoted = !quoted;
      ++end;
    }
    std::string_view item = Trim(header.substr(at, end - at));
    size_t equals = item.find('=');
    if (equals != kNone && Lower(Trim(item.substr(0, equals))) == key) {
      std::string_view value = Trim(item.substr(equals + 1));
      if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
      return value;
    }
    at = end + 1;
  }
  return {};
}

struct PartHead {
  std::string_view name;
  int64_t length = -1;  // as declared, -1 when it is not
};

PartHead ReadHead(std::string_view head) {
  PartHead out;
  while (!head.empty()) {
    size_t line_end = head.find('\n');
    std::string_view line = head.substr(0, line_end);
    head = line_end == kNone ? std::string_view() : head.substr(line_end + 1);
    size_t colon = line.find(':');
    if (colon == kNone) continue;
    std::string field = Lower(Trim(line.substr(0, colon)));
    std::string_view value = Trim(line.substr(colon + 1));
    int64_t length = 0;
    if (field == "content-disposition") out.name = Parameter(value, "name");
    if (field == "content-length" && ParseInt(value, &length)) out.length = length;
    if (field == "content-type" && ParseInt(Parameter(value, "length"), &length)) out.length = length;
  }
  return out;
}

}  // namespace

std::string BoundaryOf(std::string_view content_type) {
  std::string_view boundary = Parameter(content_type, "boundary");
  return boundary.size() > kBoundaryBytesMax ? std::string() : std::string(boundary);
}

Multipart SplitMultipart(std::string_view body, std::string_view boundary, size_t parts_max) {
  Multipart out;
  auto fail = [&](const char* problem) {
    out.problem = problem;
    return out;
  };
  if (boundary.empty()) return fail("the multipart boundary is missing");
  std::string open = "--" + std::string(boundary);
  std::string delimiter = "\r\n" + open;
  size_t at = open.size();
  if (body.substr(0, open.size()) != open) {
    size_t first = Find(body, delimiter, 0);
    if (first == kNone) return fail("the multipart boundary is not in the body");
    at = first + delimiter.size();
  }
  while (true) {
    // Here `at` is right behind a delimiter: "--" closes, a line end opens the next part.
    if (body.substr(at, 2) == "--") {
      out.whole = true;
      return out;
    }
    while (at < body.size() && (body[at] == ' ' || body[at] == '\t')) ++at;
    if (body.substr(at, 2) != "\r\n") return fail("the multipart body is cut short or malformed");
    if (out.parts.size() >= parts_max) return fail("the multipart body has too many parts");
    at += 2;
    // A part without any header starts with its empty line.
    size_t head_end = body.substr(at, 2) == "\r\n"
                          ? at
                          : Find(body.substr(0, std::min(body.size(), at + kHeaderBytesMax)), "\r\n\r\n", at);
    if (head_end == kNone) return fail("a part's header is cut short or too long");
    PartHead head = ReadHead(body.substr(at, head_end - at));
    size_t data = head_end == at ? at + 2 : head_end + 4;
    // A declared length is believed when a delimiter stands behind it; it also spares the search.
    size_t end = kNone;
    if (head.length >= 0 && static_cast<uint64_t>(head.length) <= body.size() - data &&
        body.substr(data + static_cast<size_t>(head.length), delimiter.size()) == delimiter) {
      end = data + static_cast<size_t>(head.length);
    } else {
      end = Find(body, delimiter, data);
    }
    if (end == kNone) return fail("the multipart body is cut short");
    out.parts.push_back({head.name, body.substr(data, end - data)});
    at = end + delimiter.size();
  }
}

}  // namespace tailspan::collect::langsmith
