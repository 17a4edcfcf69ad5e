#include "collect/langsmith/run.h"

#include <cmath>

#include "base/json_writer.h"
#include "collect/langsmith/run_time.h"
#include "collect/text.h"

namespace tailspan::collect::langsmith {
namespace {

using simdjson::dom::array;
using simdjson::dom::object;

constexpr std::string_view kSplitFields[] = {"inputs", "outputs", "events", "extra", "error", "serialized"};

void TakeText(std::string&& from, std::string* to) {
  if (!from.empty()) *to = std::move(from);
}

void TakeNumber(int64_t from, int64_t none, int64_t* to) {
  if (from != none) *to = from;
}

model::Uuid UuidOf(Json json) { return model::TraceIdFromText(StringOf(json)).value_or(model::Uuid{}); }

int64_t Count(Json json, std::string_view key) {
  int64_t value = -1;
  return IntOf(Member(json, key), &value) && value >= 0 ? value : -1;
}

int64_t Sum(int64_t a, int64_t b) { return a < 0 ? b : b < 0 ? a : a + b; }

// LangChain's usage_metadata, or OpenAI's usage with its older words. All -1 when it is neither.
Run::Tokens ReadUsage(Json usage) {
  Run::Tokens out;
  out.input = Count(usage, "input_tokens");
  out.output = Count(usage, "output_tokens");
  if (out.input < 0) out.input = Count(usage, "prompt_tokens");
  if (out.output < 0) out.output = Count(usage, "completion_tokens");
  if (out.input < 0) out.input = Count(usage, "promptTokens");
  if (out.output < 0) out.output = Count(usage, "completionTokens");
  out.cache_read = Count(Member(usage, "input_token_details"), "cache_read");
  out.reasoning = Count(Member(usage, "output_token_details"), "reasoning");
  if (out.cache_read < 0) out.cache_read = Count(Member(usage, "prompt_tokens_details"), "cached_tokens");
  if (out.reasoning < 0) out.reasoning = Count(Member(usage, "completion_tokens_details"), "reasoning_tokens");
  return out;
}

bool Known(const Run::Tokens& tokens) { return tokens.input >= 0 || tokens.output >= 0; }

void TakeTokens(const Run::Tokens& from, Run::Tokens* to) {
  TakeNumber(from.input, -1, &to->input);
  TakeNumber(from.output, -1, &to->output);
  TakeNumber(from.cache_read, -1, &to->cache_read);
  TakeNumber(from.reasoning, -1, &to->reasoning);
}

void AddTokens(const Run::Tokens& from, Run::Tokens* to) {
  to->input = Sum(to->input, from.input);
  to->output = Sum(to->output, from.output);
  to->cache_read = Sum(to->cache_read, from.cache_read);
  to->reasoning = Sum(to->reasoning, from.reasoning);
}

// A message as LangChain serialises it: {"lc":1,"kwargs":{...}} or its plain fields.
Json MessageFields(Json message) {
  Json kwargs = Member(message, "kwargs");
  return IsNull(kwargs) ? message : kwargs;
}

void ReadMessage(Json message, Run::Tokens* tokens, Run* run) {
  Json fields = MessageFields(message);
  AddTokens(ReadUsage(Member(fields, "usage_metadata")), tokens);
  Json about = Member(fields, "response_metadata");
  for (const char* key : {"model_name", "model"}) {
    if (run->response_model.empty()) run->response_model = std::string(StringOf(Member(about, key)));
  }
  for (const char* key : {"finish_reason", "stop_reason"}) {
    if (run->finish_reason.empty()) run->finish_reason = std::string(StringOf(Member(about, key)));
  }
}

void ReadGenerations(Json generations, Run::Tokens* tokens, Run* run) {
  array outer;
  if (generations.get_array().get(outer)) return;
  for (Json item : outer) {
    array inner;
    if (!item.get_array().get(inner)) {
      for (Json generation : inner) ReadMessage(Member(generation, "message"), tokens, run);
    } else {
      ReadMessage(Member(item, "message"), tokens, run);
    }
  }
}

// Where clients put token counts, in the order in which they are believed.
void ReadOutputs(Json outputs, Run* run) {
  Run::Tokens tokens = ReadUsage(Member(outputs, "usage_metadata"));
  Run::Tokens from_messages;
  ReadGenerations(Member(outputs, "generations"), &from_messages, run);
  if (!Known(tokens)) tokens = from_messages;
  Json llm_output = Member(outputs, "llm_output");
  Json llm_output_js = Member(outputs, "llmOutput");
  Json places[] = {Member(llm_output, "token_usage"), Member(llm_output, "usage"), Member(llm_output_js, "tokenUsage"),
                   Member(outputs, "usage"), Member(outputs, "token_usage")};
  for (Json place : places) {
    if (!Known(tokens)) tokens = ReadUsage(place);
  }
  object members;
  if (!outputs.get_object().get(members)) {
    for (auto [key, value] : members) {
      if (Known(tokens)) break;
      Json fields = MessageFields(value);
      tokens = ReadUsage(Member(fields, "usage_metadata"));
    }
  }
  TakeTokens(tokens, &run->tokens);
  for (Json place : {Member(outputs, "model"), Member(llm_output, "model_name"), Member(llm_output, "model")}) {
    if (run->response_model.empty()) run->response_model = std::string(StringOf(place));
  }
}

// The Python client copies its own environment into each run's metadata.
bool IsClientSetting(std::string_view key) {
  return key.substr(0, 10) == "LANGSMITH_" || key.substr(0, 10) == "LANGCHAIN_";
}

void ReadEvents(Json events, Run* run) {
  array items;
  if (events.get_array().get(items)) return;
  run->has_events = true;
  for (Json event : items) {
    std::string_view name = StringOf(Member(event, "name"));
    if (name == "new_token") {
      int64_t time_unix_ns = UnixNsFromJson(Member(event, "time"), nullptr);
      if (run->first_token_unix_ns == 0) run->first_token_unix_ns = time_unix_ns;
      ++run->streamed_tokens;
    }
    if (name == "retry") {
      double slept = 0;
      Json kwargs = Member(event, "kwargs");
      ++run->retries;
      if (!Member(kwargs, "slept").get_double().get(slept) && std::isfinite(slept) && slept > 0 && slept < 1e9) {
        run->retry_slept_ns += std::llround(slept * 1e9);
      }
    }
  }
}

// What was built, without what it was built from: the arguments hold prompt templates and canned answers.
std::string Constructor(Json serialized) {
  base::JsonWriter out;
  out.BeginObject();
  for (const char* key : {"lc", "type", "id", "name"}) {
    Json value = Member(serialized, key);
    if (!IsNull(value)) out.Key(key).Raw(TextOf(value));
  }
  out.EndObject();
  return out.text();
}

}  // namespace

size_t Run::ApproxBytes() const {
  size_t bytes = sizeof *this;
  for (const std::string* text : {&name, &run_type, &project, &error, &inputs.text, &outputs.text, &request_model,
                                  &response_model, &provider, &finish_reason, &serialized, &tags}) {
    bytes += text->size();
  }
  for (const auto& [key, value] : metadata) bytes += sizeof(Attribute) + key.size() + value.text.size();
  return bytes;
}

void Run::Merge(Run&& update) {
  if (update.trace_id) trace_id = update.trace_id;
  if (update.parent_id) parent_id = update.parent_id;
  TakeText(std::move(update.name), &name);
  TakeText(std::move(update.run_type), &run_type);
  TakeText(std::move(update.project), &project);
  TakeNumber(update.start_unix_ns, 0, &start_unix_ns);
  if (update.end_unix_ns != 0) {
    end_unix_ns = update.end_unix_ns;
    end_in_ms = update.end_in_ms;
  }
  if (update.has_error) {
    has_error = true;
    error = std::move(update.error);
  }
  if (update.inputs.known) inputs = std::move(update.inputs);
  if (update.outputs.known) outputs = std::move(update.outputs);
  TakeTokens(update.tokens, &tokens);
  TakeText(std::move(update.request_model), &request_model);
  TakeText(std::move(update.response_model), &response_model);
  TakeText(std::move(update.provider), &provider);
  TakeText(std::move(update.finish_reason), &finish_reason);
  TakeText(std::move(update.serialized), &serialized);
  TakeText(std::move(update.tags), &tags);
  if (!update.metadata.empty()) metadata = std::move(update.metadata);
  if (update.has_events) {
    has_events = true;
    first_token_unix_ns = update.first_token_unix_ns;
    streamed_tokens = update.streamed_tokens;
    retries = update.retries;
    retry_slept_ns = update.retry_slept_ns;
  }
  if (update.sender_pid != 0) sender_pid = update.sender_pid;
  posted = posted || update.posted;
}

bool RunReader::Object(Json json, Run* run) {
  object members;
  if (json.get_object().get(members)) return false;
  if (!run->id) run->id = UuidOf(Member(json, "id"));
  run->trace_id = UuidOf(Member(json, "trace_id"));
  run->parent_id = UuidOf(Member(json, "parent_run_id"));
  DottedOrder order = ParseDottedOrder(StringOf(Member(json, "dotted_order")));
  if (order.self) {
    if (!run->trace_id) run->trace_id = order.root;
    if (!run->parent_id) run->parent_id = order.parent;
  }
  run->name = std::string(StringOf(Member(json, "name")));
  run->run_type = std::string(StringOf(Member(json, "run_type")));
  run->project = std::string(StringOf(Member(json, "session_name")));
  run->start_unix_ns = UnixNsFromJson(Member(json, "start_time"), nullptr);
  if (run->start_unix_ns == 0) run->start_unix_ns = order.start_unix_ns;
  run->end_unix_ns = UnixNsFromJson(Member(json, "end_time"), &run->end_in_ms);
  Json tags = Member(json, "tags");
  array list;
  if (!tags.get_array().get(list) && list.size() > 0) run->tags = TextOf(tags);
  Run::Tokens tokens;
  tokens.input = Count(json, "prompt_tokens");
  tokens.output = Count(json, "completion_tokens");
  TakeTokens(tokens, &run->tokens);
  for (std::string_view field : kSplitFields) {
    Json value = Member(json, field);
    if (!IsNull(value)) FieldValue(field, value, {}, run);
  }
  return true;
}

bool RunReader::Field(std::string_view field, std::string_view text, Run* run) {
  auto json = parser_.Parse(text);
  if (!json.ok()) return false;
  FieldValue(field, *json, text, run);
  return true;
}

void RunReader::ReadExtra(Json extra, Run* run) {
  Json metadata = Member(extra, "metadata");
  object members;
  if (!metadata.get_object().get(members)) {
    for (auto [key, value] : members) {
      if (key == "ls_model_name") {
        run->request_model = std::string(StringOf(value));
      } else if (key == "ls_provider") {
        run->provider = std::string(StringOf(value));
      } else if (key == "usage_metadata") {
        TakeTokens(ReadUsage(value), &run->tokens);
      } else if (!IsNull(value) && !IsClientSetting(key)) {
        if (run->metadata.size() >= limits_.raw_attributes) {
          loss_.Add(base::Loss::kAttributeCut);
          continue;
        }
        run->metadata.emplace_back("langsmith.metadata." + std::string(key), ValueOf(value));
      }
    }
  }
  Json parameters = Member(extra, "invocation_params");
  for (const char* key : {"model", "model_name"}) {
    if (run->request_model.empty()) run->request_model = std::string(StringOf(Member(parameters, key)));
  }
}

void RunReader::FieldValue(std::string_view field, Json json, std::string_view text, Run* run) {
  if (IsNull(json)) return;
  if (field == "inputs" || field == "outputs") {
    std::string written;
    if (text.empty()) {
      written = TextOf(json);
      text = written;
    }
    Run::Content& content = field == "inputs" ? run->inputs : run->outputs;
    content = {true, text.size(), ShortHash(text), keep_content_ ? std::string(text) : std::string()};
    if (field == "outputs") ReadOutputs(json, run);
  } else if (field == "events") {
    ReadEvents(json, run);
  } else if (field == "extra") {
    ReadExtra(json, run);
  } else if (field == "error") {
    run->error = json.is_string() ? std::string(StringOf(json)) : TextOf(json);
    run->has_error = !run->error.empty();
  } else if (field == "serialized") {
    run->serialized = keep_content_ ? TextOf(json) : Constructor(json);
  }
}

}  // namespace tailspan::collect::langsmith
