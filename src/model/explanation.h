// The answer for one operation: the typical request, the tail, and who made the difference (contract: explanation/1).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/kernel.h"
#include "model/ledger.h"

namespace tailspan::model {

enum class Verdict : uint8_t { kFault, kHealthy, kInsufficient };

struct Range {
  double low = 0, high = 0;
};

struct Finding {
  int rank = 0;
  Cause cause = Cause::kUnexplained;
  std::string span;
  std::vector<std::string> span_path;
  Blame blame;
  double typical_ns = 0, tail_ns = 0, excess_ns = 0;
  double share_of_excess = 0;
  Range share_ci95;
  double share_of_shortfall = 0;
  Range shortfall_ci95;
  double shortfall_ns = 0;       // its part of the mean beyond the quantile
  bool is_fault = false;         // leads a group of lines that passes the verdict rule
  bool grows_with_size = false;  // its excess goes with the request's own size
  bool is_suspect = false;       // would be a fault, were its interval narrower
  // Lines over several spans with one cause and one other party to blame are one group; `group_rank` is the rank of its
  // largest line (this line's own rank when it leads), the figures are of the whole group.
  int group_rank = 0;
  int group_lines = 1;
  double group_excess_ns = 0;
  double group_share_of_excess = 0;
  Range group_share_ci95;
  double group_share_of_shortfall = 0;
  Range group_shortfall_ci95;
  int64_t tail_requests_hit = 0;  // requests beyond the quantile in which the group is large
  double other_requests_hit = 0;  // share of the remaining requests in which it is
  bool has_what_if = false;
  std::string what_if_how;
  double what_if_tail_ns = 0;
  Range what_if_ci95_ns;
  std::vector<std::string> evidence_for, evidence_against, missing;
  std::string pattern, fix, phase, function;
  std::vector<TraceId> exemplars;
  SpanId first_exemplar_root = 0;  // of the first exemplar's request
  bool names_root = false;         // its trace has other requests too: the id alone does not tell which is meant
  std::string reproduce;
};

struct OperationSummary {
  std::string operation;
  int64_t requests = 0;
  double excess_total_ns = 0;    // summed over requests: latency beyond the typical one
  bool enough_requests = false;  // for a verdict
};

// Two independent books of the on-CPU time of all followed threads: how far the recording can be trusted.
struct CpuBook {
  int64_t measured_ns = 0;    // between the switches that we saw
  int64_t scheduler_ns = 0;   // the scheduler's own, of the same windows
  int64_t preemption_ns = 0;  // of what it is ahead: explained by how it books a preempting waking
  // Relative difference of the scheduler's book that nothing explains; 0 when there is nothing to compare.
  double difference() const {
    if (measured_ns <= 0) return 0;
    return static_cast<double>(scheduler_ns - preemption_ns - measured_ns) / static_cast<double>(measured_ns);
  }
};

struct Explanation {
  std::string file;
  int64_t from_unix_ns = 0, to_unix_ns = 0;
  std::string operation;
  int64_t requests = 0, errors = 0;
  int64_t unfinished = 0;  // roots whose end never came: in no figure, and late if anything
  double quantile = 0.99, typical_quantile = 0.5;
  Verdict verdict = Verdict::kInsufficient;
  std::string verdict_reason;  // one sentence
  std::string verdict_rule;    // the rule with its constants
  double typical_ns = 0, tail_ns = 0, excess_ns = 0;
  Range tail_ci95_ns;
  double shortfall_ns = 0;            // mean of the requests beyond the quantile
  int64_t requests_beyond = 0;        // how many those are
  std::string reference = "typical";  // what the tail is compared with: typical, slo, baseline
  int64_t block_length = 1;           // of the bootstrap, in requests
  bool replayed = false;              // the next figure is known
  double replay_contention_ns = 0;    // contention's excess in the replay with capped demands
  std::vector<Finding> findings;      // ranked; all with a share of at least 1 %
  Finding rest;                       // what is below 1 % each, as one line
  double explained_share_of_tail = 0;
  double unexplained_share = 0, unblamed_share = 0, summed_share = 0;  // of the tail's nanoseconds
  std::vector<OperationSummary> operations;
  CpuBook cpu_book;
  std::map<std::string, double> join;  // share of nanoseconds by way of joining
  std::map<std::string, uint64_t> loss;
  std::vector<Capability> capabilities;
  std::map<std::string, std::string> manifest;
  std::vector<std::string> notes;
};

}  // namespace tailspan::model
