// The ledgers of one operation as numbers: requests by components.
//
// A component is (span path, cause, blame kind and name). Each request's cells partition its duration exactly, since
// its ledger's pieces do. Requests stand in ascending order of duration; `arrivals` gives the order in which they came.
// Borrowed: the ledgers must outlive the population. Immutable once built.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/ledger.h"

namespace tailspan::analyze {

struct Component {
  uint32_t path = 0;  // index into Population::paths
  model::Cause cause = model::Cause::kUnexplained;
  model::BlameKind blame_kind = model::BlameKind::kNone;
  std::string blame_name;
  uint32_t group = 0;
};

// Lines over several span paths that have one cause and one other party to blame can be one fault. What blames no other
// party (own CPU time, a timer, no one) is a group of its own for each path.
struct Group {
  model::Cause cause = model::Cause::kUnexplained;
  std::vector<uint32_t> components;
};

struct Cell {
  uint32_t component = 0;
  double ns = 0;
};

struct Population {
  std::string operation;
  std::vector<const model::TraceLedger*> requests;
  std::vector<double> total_ns;
  std::vector<double> weights;
  std::vector<uint32_t> arrivals;  // arrivals[j]: which request came j-th
  std::vector<std::vector<std::string>> paths;
  std::vector<Component> components;
  std::vector<Group> groups;
  std::vector<size_t> row_begin;  // requests + 1
  std::vector<Cell> cells;
  double weight_sum = 0;
  bool weighted = false;  // some request's weight is not 1

  size_t size() const { return requests.size(); }
  std::span<const Cell> Row(size_t request) const {
    return {cells.data() + row_begin[request], row_begin[request + 1] - row_begin[request]};
  }
  double mean_weight() const { return size() ? weight_sum / static_cast<double>(size()) : 1; }
};

// Whether this blame names another party, one that several spans can wait for at once.
bool BlamesOther(model::BlameKind kind);

// Identity of a component across recordings and populations.
std::string ComponentKey(const std::vector<std::string>& path, model::Cause cause, model::BlameKind kind,
                         const std::string& name);

// The operation's requests that ended well (or, with `failed`, those that did not).
Population BuildPopulation(const std::vector<model::TraceLedger>& ledgers, const std::string& operation, bool failed);

}  // namespace tailspan::analyze
