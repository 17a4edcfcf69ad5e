#include "report/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tailspan::report {
namespace {

bool StartsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

size_t WidthOf(const std::string& text) {
  size_t width = 0;
  for (const char c : text) width += StartsCharacter(c);
  return width;
}

// One word of a shell's command line, and no option.
std::string ForShell(const std::string& word) {
  const bool plain =
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+=@%") ==
      std::string::npos;
  std::string out = word.front() == '-' ? "./" + word : word;
  if (plain) return out;
  for (size_t at = 0; (at = out.find('\'', at)) != std::string::npos; at += 4) out.replace(at, 1, "'\\''");
  return "'" + out + "'";
}

}  // namespace

const char* VerdictName(model::Verdict verdict) {
  switch (verdict) {
    case model::Verdict::kFault:
      return "fault";
    case model::Verdict::kHealthy:
      return "healthy";
    case model::Verdict::kInsufficient:
      return "insufficient";
  }
  return "insufficient";
}

std::string ReproduceCommand(const model::Explanation& explanation, const model::Finding& finding) {
  if (!finding.reproduce.empty() || finding.exemplars.empty()) return finding.reproduce;
  return fmt::format("tailspan explain {} --trace {}{}", explanation.file.empty() ? "FILE" : ForShell(explanation.file),
                     model::ToHex(finding.exemplars.front()),
                     finding.names_root ? "/" + model::ToHex(finding.first_exemplar_root) : "");
}

std::string FitText(const std::string& raw, size_t width, bool pad) {
  const std::string text = base::CleanText(raw);
  const size_t have = WidthOf(text);
  if (have <= width) return pad ? text + std::string(width - have, ' ') : text;
  std::string out;
  size_t columns = 0;
  for (const char c : text) {
    if (StartsCharacter(c) && ++columns == width) break;
    out += c;
  }
  return out + "…";
}

std::string WrapText(const std::string& first, const std::string& raw, size_t width) {
  const std::string text = base::CleanText(raw);
  const std::string indent(WidthOf(first), ' ');
  std::string out = first;
  size_t columns = indent.size();
  bool fresh = true;  // nothing of the text stands on this line yet
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!fresh && columns + 1 + WidthOf(word) > width) {
      out += "\n" + indent;
      columns = indent.size();
      fresh = true;
    }
    if (!fresh) out += ' ';
    columns += WidthOf(word) + !fresh;
    out += word;
    fresh = false;
    at = end + 1;
  }
  return out;
}

}  // namespace tailspan::report
