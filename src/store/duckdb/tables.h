// Every table of a recording. Order of enum names and of columns is part of the stored format: a change of either needs
// a new kSchemaVersion.
#pragma once

#include <string>
#include <vector>

#include "model/batch.h"
#include "model/ledger.h"
#include "store/duckdb/columns.h"

namespace tailspan::store::duckdb {

inline constexpr int kSchemaVersion = 2;

struct LossRow {
  std::string name;
  uint64_t count = 0;
};
struct HostRow {
  uint16_t id = 0;
  model::HostKey key;
};
struct PathRow {
  uint32_t path = 0;
  std::vector<std::string> names;
};

const std::vector<EnumType>& EnumTypes();
const EnumType& CauseEnum();
const EnumType& WaitClassEnum();
const EnumType& TargetKindEnum();
const EnumType& WakerKindEnum();
const EnumType& ProcessEventEnum();
const EnumType& StepKindEnum();
const EnumType& SpanChangeEnum();
const EnumType& SpanTypeEnum();
const EnumType& SpanStatusEnum();
const EnumType& BlameKindEnum();
const EnumType& JoinEnum();

const Table<HostRow>& HostTable();
const Table<model::RecordingInfo>& RecordingTable();
const Table<model::Capability>& CapabilityTable();
const Table<LossRow>& LossTable();
const Table<base::ClockPair>& ClockPairTable();

const Table<model::Span>& SpanTable();

const Table<model::ThreadInterval>& IntervalTable();
const Table<model::ProcessInfo>& ProcessTable();
const Table<model::ProcessEvent>& ProcessEventTable();
const Table<model::Retransmission>& RetransmissionTable();
const Table<model::SocketInfo>& SocketTable();
const Table<model::SocketReady>& SocketReadyTable();
const Table<model::BlockRequest>& BlockRequestTable();
const Table<model::CpuSample>& CpuSampleTable();

const Table<model::LoopStep>& StepTable();
const Table<model::LoopSite>& SiteTable();
const Table<model::SpanChange>& SpanChangeTable();
const Table<model::LoopPoll>& PollTable();
const Table<model::LoopHole>& HoleTable();
const Table<model::GcPause>& GcPauseTable();

const Table<model::TraceLedger>& TraceTable();
const Table<PathRow>& TracePathTable();
const Table<model::LedgerPiece>& TracePieceTable();

// Calls `visit` with each table, in the order of docs/schema.md.
template <typename Visit>
void ForEachTable(Visit visit) {
  visit(RecordingTable()), visit(HostTable()), visit(CapabilityTable()), visit(LossTable()), visit(ClockPairTable());
  visit(SpanTable());
  visit(IntervalTable()), visit(ProcessTable()), visit(ProcessEventTable()), visit(RetransmissionTable());
  visit(SocketTable()), visit(SocketReadyTable()), visit(BlockRequestTable()), visit(CpuSampleTable());
  visit(StepTable()), visit(SiteTable()), visit(SpanChangeTable()), visit(PollTable()), visit(HoleTable()),
      visit(GcPauseTable());
  visit(TraceTable()), visit(TracePathTable()), visit(TracePieceTable());
}

// The rows of a batch, table by table: visit(table, batch.member).
template <typename Batch, typename Visit>
void ForEachBatchTable(Batch& batch, Visit visit) {
  visit(ClockPairTable(), batch.clock_pairs);
  visit(SpanTable(), batch.spans);
  visit(IntervalTable(), batch.intervals);
  visit(ProcessTable(), batch.processes);
  visit(ProcessEventTable(), batch.process_events);
  visit(RetransmissionTable(), batch.retransmissions);
  visit(SocketTable(), batch.sockets);
  visit(SocketReadyTable(), batch.sockets_ready);
  visit(BlockRequestTable(), batch.block_requests);
  visit(CpuSampleTable(), batch.cpu_samples);
  visit(StepTable(), batch.steps);
  visit(SiteTable(), batch.sites);
  visit(SpanChangeTable(), batch.span_changes);
  visit(PollTable(), batch.polls);
  visit(HoleTable(), batch.loop_holes);
  visit(GcPauseTable(), batch.gc_pauses);
}

struct View {
  std::string name, doc, sql;
};
const std::vector<View>& Views();

// All statements that make an empty recording, as one text.
std::string SchemaSql();

}  // namespace tailspan::store::duckdb
