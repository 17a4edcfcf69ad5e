#include "base/result.h"
#include "model/cause.h"
#include "model/ledger.h"
#include "store/duckdb/tables.h"

namespace tailspan::store::duckdb {
namespace {

template <typename Enum, typename NameOf>
EnumType Named(const char* sql_name, Enum last, NameOf name_of) {
  EnumType type{sql_name, {}};
  for (int i = 0; i <= static_cast<int>(last); ++i) type.names.emplace_back(name_of(static_cast<Enum>(i)));
  return type;
}

}  // namespace

const EnumType& CauseEnum() {
  static const EnumType type =
      Named("cause", static_cast<model::Cause>(static_cast<int>(model::Cause::kCount) - 1), model::CauseName);
  return type;
}

const EnumType& WaitClassEnum() {
  static const EnumType type{
      "wait_class",
      {"none", "run_queue", "throttled", "gil", "futex", "poll", "socket_recv", "socket_send", "connect", "pipe",
       "sleep", "page_fault", "disk_read", "disk_write", "child", "stopped", "other"}};
  TAILSPAN_CHECK(type.names.size() == static_cast<size_t>(model::WaitClass::kCount));
  return type;
}

const EnumType& TargetKindEnum() {
  static const EnumType type{
      "target_kind",
      {"none", "futex", "socket", "unix_socket", "pipe", "file", "epoll", "eventfd", "timerfd", "memory", "other"}};
  return type;
}

const EnumType& WakerKindEnum() {
  static const EnumType type{"waker_kind", {"none", "thread", "timer", "network", "block", "other_irq"}};
  return type;
}

const EnumType& ProcessEventEnum() {
  static const EnumType type{"process_event_kind", {"fork", "thread", "exec", "exit", "thread_exit"}};
  return type;
}

const EnumType& StepKindEnum() {
  static const EnumType type{"step_kind", {"soon", "io_read", "io_write", "timer", "executor", "new_task"}};
  return type;
}

const EnumType& SpanChangeEnum() {
  static const EnumType type{"span_change_kind", {"enter", "leave", "restore"}};
  return type;
}

const EnumType& SpanTypeEnum() {
  static const EnumType type{"span_type",
                             {"other", "llm", "retriever", "embedding", "tool", "chain", "agent", "reranker", "prompt",
                              "parser", "server", "client"}};
  return type;
}

const EnumType& SpanStatusEnum() {
  static const EnumType type{"span_status", {"unset", "ok", "error", "cancelled"}};
  return type;
}

const EnumType& BlameKindEnum() {
  static const EnumType type = Named("blame_kind", model::BlameKind::kTimer, model::BlameKindName);
  return type;
}

const EnumType& JoinEnum() {
  static const EnumType type = Named("join_kind", model::Join::kNone, model::JoinName);
  return type;
}

const std::vector<EnumType>& EnumTypes() {
  static const std::vector<EnumType> types = {CauseEnum(),        WaitClassEnum(), TargetKindEnum(), WakerKindEnum(),
                                              ProcessEventEnum(), StepKindEnum(),  SpanChangeEnum(), SpanTypeEnum(),
                                              SpanStatusEnum(),   BlameKindEnum(), JoinEnum()};
  return types;
}

}  // namespace tailspan::store::duckdb
