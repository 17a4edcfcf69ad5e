#include "cli/python_status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

namespace tailspan::cli {
namespace {

using nlohmann::json;

constexpr size_t kFilesMax = 1000;
constexpr size_t kFileBytesMax = 256 << 10;
constexpr size_t kReasonBytesMax = 200;
constexpr size_t kNameBytesMax = 64;
constexpr size_t kLinesMax = 200;

std::string Reason(const json& state) {
  auto found = state.find("reason");
  return found != state.end() && found->is_string() ? found->get<std::string>().substr(0, kReasonBytesMax) : "";
}

// The folder is open to the command's user: what lies there may be a link to what only we may read, or a FIFO.
std::string ReadUntrusted(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return text;
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    text.resize(kFileBytesMax);
    const ssize_t got = read(fd, text.data(), text.size());
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  }
  close(fd);
  return text;
}

bool IsOn(const json& state) {
  auto found = state.find("on");
  return found != state.end() && found->is_boolean() && found->get<bool>();
}

// On when it is on in one process at least: helpers that use no hooked library report nothing else.
void Merge(const std::string& signal, bool on, const std::string& reason, const char* remedy,
           std::map<std::string, model::Capability>* out) {
  if (out->size() >= kLinesMax && !out->contains(signal)) return;
  auto [it, fresh] = out->try_emplace(signal, model::Capability{signal, on, on ? "" : reason, on ? "" : remedy});
  if (!fresh && on) it->second = {signal, true, "", ""};
}

}  // namespace

std::vector<model::Capability> ReadPythonStatus(const std::string& folder) {
  std::map<std::string, model::Capability> found;
  std::error_code error;
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".json" || ++files > kFilesMax) continue;
    json status = json::parse(ReadUntrusted(entry.path()), nullptr, /*allow_exceptions=*/false);
    if (!status.is_object()) continue;
    if (auto context = status.find("context"); context != status.end() && context->is_object()) {
      Merge("python_thread_context", IsOn(*context), Reason(*context),
            "python/native/build.py builds the extension for the app's interpreter", &found);
    }
    if (auto hooks = status.find("hooks"); hooks != status.end() && hooks->is_object()) {
      for (const auto& [name, state] : hooks->items()) {
        if (!state.is_object() || IsOn(state)) continue;
        Merge("python_hook_" + name.substr(0, kNameBytesMax), false, Reason(state),
              "use a version of the library that docs/python-hooks.md names", &found);
      }
    }
    if (auto loop = status.find("loop"); loop != status.end() && loop->is_object() && !loop->empty()) {
      auto ring = loop->find("ring");
      bool on = ring != loop->end() && ring->is_boolean() && ring->get<bool>();
      std::string reason =
          ring != loop->end() && ring->is_string() ? ring->get<std::string>().substr(0, kReasonBytesMax) : "";
      Merge("loop_ring", on, reason, "needs asyncio's own loop on CPython 3.10 to 3.14", &found);
    }
  }
  std::vector<model::Capability> out;
  for (auto& [signal, capability] : found) out.push_back(std::move(capability));
  return out;
}

}  // namespace tailspan::cli
