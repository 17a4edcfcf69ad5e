// One run of LangSmith's API as far as it is known: what a post or a patch says, and what they say together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/loss.h"
#include "collect/json.h"
#include "collect/limits.h"
#include "collect/raw_span.h"
#include "model/ids.h"

namespace tailspan::collect::langsmith {

struct Run {
  // An input or output: what is kept of it unless contents are.
  struct Content {
    bool known = false;
    size_t bytes = 0;
    std::string hash;
    std::string text;  // only with keep_content
  };
  struct Tokens {
    int64_t input = -1;
    int64_t output = -1;
    int64_t cache_read = -1;
    int64_t reasoning = -1;
  };

  model::Uuid id;
  model::Uuid trace_id;   // none: not said
  model::Uuid parent_id;  // none: not said, or a root
  std::string name;
  std::string run_type;
  std::string project;
  int64_t start_unix_ns = 0;
  int64_t end_unix_ns = 0;
  bool end_in_ms = false;  // JavaScript: the microseconds of its start are a counter, not time
  bool has_error = false;
  std::string error;
  Content inputs;
  Content outputs;
  Tokens tokens;
  std::string request_model;
  std::string response_model;
  std::string provider;
  std::string finish_reason;
  std::string serialized;
  std::string tags;
  std::vector<Attribute> metadata;
  bool has_events = false;
  int64_t first_token_unix_ns = 0;
  int64_t streamed_tokens = 0;
  int64_t retries = 0;
  int64_t retry_slept_ns = 0;
  int32_t sender_pid = 0;  // the process that sent it, 0 unknown
  bool posted = false;     // its post has come, not only patches

  // What it takes in memory, roughly.
  size_t ApproxBytes() const;
  // Takes over everything that `update` says.
  void Merge(Run&& update);
};

// Reads the fields of a run, whole or split into multipart's parts.
class RunReader {
 public:
  RunReader(const Limits& limits, bool keep_content, base::LossCounters& loss)
      : limits_(limits), keep_content_(keep_content), loss_(loss), parser_(limits, loss) {}

  // The object of a post or patch, with every field that it has. False when it is no object.
  bool Object(Json json, Run* run);
  // One split-out field: inputs, outputs, events, extra, error, serialized; others are passed over. False: not JSON.
  bool Field(std::string_view field, std::string_view text, Run* run);

  JsonParser& parser() { return parser_; }

 private:
  void FieldValue(std::string_view field, Json json, std::string_view text, Run* run);
  void ReadExtra(Json extra, Run* run);

  Limits limits_;
  bool keep_content_;
  base::LossCounters& loss_;
  JsonParser parser_;
};

}  // namespace tailspan::collect::langsmith
