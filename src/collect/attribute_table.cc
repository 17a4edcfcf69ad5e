#include "collect/attribute_table.h"

#include <unordered_map>

#include "collect/normalise.h"

namespace tailspan::collect {
namespace {

struct Row {
  std::string_view key;
  NameRule rule;
};

constexpr Row kExact[] = {
    // kind. LangSmith's OTel mode calls retrievers "embeddings" and prompts "chat" in gen_ai.operation.name: its own
    // attribute is right, so it outranks the convention's.
    {"langsmith.span.kind", {kRunType, Role::kKind, 0}},
    {"openinference.span.kind", {kOperationName, Role::kKind, 1}},
    {"gen_ai.operation.name", {kOperationName, Role::kKind, 2}},
    {"traceloop.span.kind", {"traceloop.span.kind", Role::kKind, 3}},
    {"llm.request.type", {"llm.request.type", Role::kKind, 4}},
    // provider and model
    {"gen_ai.provider.name", {kProviderName, Role::kPlain, 0}},
    {"langsmith.metadata.ls_provider", {kProviderName, Role::kPlain, 1}},
    {"gen_ai.system", {kProviderName, Role::kPlain, 2}},
    {"llm.provider", {kProviderName, Role::kPlain, 3}},
    {"llm.system", {kProviderName, Role::kPlain, 4}},
    {"gen_ai.request.model", {kRequestModel, Role::kPlain, 0}},
    {"llm.request.model_name", {kRequestModel, Role::kPlain, 1}},
    {"llm.model_name", {kRequestModel, Role::kPlain, 2}},
    {"embedding.model_name", {kRequestModel, Role::kPlain, 3}},
    {"reranker.model_name", {kRequestModel, Role::kPlain, 3}},
    {"llm.model.id", {kRequestModel, Role::kPlain, 4}},
    {"langsmith.metadata.ls_model_name", {kRequestModel, Role::kPlain, 5}},
    {"gen_ai.response.model", {kResponseModel, Role::kPlain, 0}},
    {"llm.response.model_name", {kResponseModel, Role::kPlain, 1}},
    // tokens
    {"gen_ai.usage.input_tokens", {kInputTokens, Role::kPlain, 0}},
    {"gen_ai.usage.prompt_tokens", {kInputTokens, Role::kPlain, 1}},
    {"llm.token_count.prompt", {kInputTokens, Role::kPlain, 2}},
    {"llm.usage.prompt_tokens", {kInputTokens, Role::kPlain, 3}},
    {"gen_ai.usage.output_tokens", {kOutputTokens, Role::kPlain, 0}},
    {"gen_ai.usage.completion_tokens", {kOutputTokens, Role::kPlain, 1}},
    {"llm.token_count.completion", {kOutputTokens, Role::kPlain, 2}},
    {"llm.usage.completion_tokens", {kOutputTokens, Role::kPlain, 3}},
    {"gen_ai.usage.cache_read.input_tokens", {kCacheReadTokens, Role::kPlain, 0}},
    {"gen_ai.usage.cache_read_input_tokens", {kCacheReadTokens, Role::kPlain, 1}},
    {"llm.token_count.prompt_details.cache_read", {kCacheReadTokens, Role::kPlain, 2}},
    {"gen_ai.usage.reasoning.output_tokens", {kReasoningTokens, Role::kPlain, 0}},
    {"gen_ai.usage.reasoning_tokens", {kReasoningTokens, Role::kPlain, 1}},
    {"llm.token_count.completion_details.reasoning", {kReasoningTokens, Role::kPlain, 2}},
    // streaming, time to the first token, queue
    {"gen_ai.request.stream", {"gen_ai.request.stream", Role::kPlain, 0}},
    {"langsmith.request.streaming", {"gen_ai.request.stream", Role::kPlain, 1}},
    {"gen_ai.is_streaming", {"gen_ai.request.stream", Role::kPlain, 2}},
    {"llm.is_streaming", {"gen_ai.request.stream", Role::kPlain, 3}},
    {"gen_ai.response.time_to_first_chunk", {"gen_ai.response.time_to_first_chunk", Role::kPlain, 0}},
    {"gen_ai.latency.time_to_first_token", {"gen_ai.response.time_to_first_chunk", Role::kPlain, 1}},
    // conversation, agent, tool, workflow
    {"gen_ai.conversation.id", {kConversationId, Role::kPlain, 0}},
    {"langsmith.metadata.thread_id", {kConversationId, Role::kPlain, 1}},
    {"langsmith.metadata.session_id", {kConversationId, Role::kPlain, 2}},
    {"langsmith.metadata.conversation_id", {kConversationId, Role::kPlain, 3}},
    {"session.id", {kConversationId, Role::kPlain, 4}},
    {"traceloop.association.properties.thread_id", {kConversationId, Role::kPlain, 5}},
    {"traceloop.association.properties.session_id", {kConversationId, Role::kPlain, 6}},
    {"gen_ai.agent.name", {"gen_ai.agent.name", Role::kPlain, 0}},
    {"agent.name", {"gen_ai.agent.name", Role::kPlain, 1}},
    {"gen_ai.tool.name", {"gen_ai.tool.name", Role::kPlain, 0}},
    {"tool.name", {"gen_ai.tool.name", Role::kPlain, 1}},
    {"gen_ai.tool.call.id", {"gen_ai.tool.call.id", Role::kPlain, 0}},
    {"tool.id", {"gen_ai.tool.call.id", Role::kPlain, 1}},
    {"gen_ai.workflow.name", {"gen_ai.workflow.name", Role::kPlain, 0}},
    {"traceloop.workflow.name", {"gen_ai.workflow.name", Role::kPlain, 1}},
    {"gen_ai.response.finish_reasons", {"gen_ai.response.finish_reasons", Role::kPlain, 0}},
    {"gen_ai.response.finish_reason", {"gen_ai.response.finish_reasons", Role::kPlain, 1}},
    {"llm.finish_reason", {"gen_ai.response.finish_reasons", Role::kPlain, 2}},
    // content, from the best source to the worst
    {"gen_ai.input.messages", {kInputMessages, Role::kInput, 0}},
    {"gen_ai.tool.call.arguments", {kInputMessages, Role::kInput, 1}},
    {"gen_ai.retrieval.query.text", {kInputMessages, Role::kInput, 1}},
    {"input.value", {kInputMessages, Role::kInput, 3}},
    {"llm.prompts", {kInputMessages, Role::kInput, 5}},
    {"traceloop.entity.input", {kInputMessages, Role::kInput, 6}},
    {"gen_ai.task.input", {kInputMessages, Role::kInput, 6}},
    {"gen_ai.system_instructions", {kInputMessages, Role::kInput, 7}},
    {"gen_ai.tool.definitions", {kInputMessages, Role::kInput, 8}},
    {"tool.parameters", {kInputMessages, Role::kInput, 8}},
    {"llm.prompt_template.template", {kInputMessages, Role::kInput, 9}},
    {"llm.prompt_template.variables", {kInputMessages, Role::kInput, 9}},
    {"embedding.text", {kInputMessages, Role::kInput, 9}},
    {"gen_ai.output.messages", {kOutputMessages, Role::kOutput, 0}},
    {"gen_ai.tool.call.result", {kOutputMessages, Role::kOutput, 1}},
    {"gen_ai.retrieval.documents", {kOutputMessages, Role::kOutput, 1}},
    {"output.value", {kOutputMessages, Role::kOutput, 3}},
    {"traceloop.entity.output", {kOutputMessages, Role::kOutput, 6}},
    {"gen_ai.task.output", {kOutputMessages, Role::kOutput, 6}},
    // process and thread
    {"process.pid", {"process.pid", Role::kPid, 0}},
    {"thread.id", {"thread.id", Role::kThreadId, 0}},
};

// Numbered or nested names.
constexpr Row kPrefixes[] = {
    {"gen_ai.prompt", {kInputMessages, Role::kInput, 2}},
    {"llm.input_messages.", {kInputMessages, Role::kInput, 4}},
    {"llm.tools.", {kInputMessages, Role::kInput, 9}},
    {"embedding.embeddings.", {kInputMessages, Role::kInput, 9}},
    {"reranker.", {kInputMessages, Role::kInput, 9}},
    {"gen_ai.completion", {kOutputMessages, Role::kOutput, 2}},
    {"llm.output_messages.", {kOutputMessages, Role::kOutput, 4}},
    {"retrieval.documents.", {kOutputMessages, Role::kOutput, 5}},
};

}  // namespace

NameRule RuleFor(std::string_view key) {
  static const auto* const exact = [] {
    auto* map = new std::unordered_map<std::string_view, NameRule>();
    for (const Row& row : kExact) map->emplace(row.key, row.rule);
    return map;
  }();
  auto found = exact->find(key);
  if (found != exact->end()) return found->second;
  for (const Row& row : kPrefixes) {
    if (key.size() >= row.key.size() && key.compare(0, row.key.size(), row.key) == 0) return row.rule;
  }
  return {};
}

}  // namespace tailspan::collect
