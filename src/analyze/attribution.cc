#include "analyze/attribution.h"

#include <algorithm>
#include <numeric>

namespace tailspan::analyze {
namespace {

double ShareOf(double part, double whole) { return whole > 0 ? part / whole : 0; }

// The fits of one (re)sample.
struct Fits {
  std::vector<stats::Weighted> typical, tail, shortfall;
  stats::QuantileAt tail_at;
  double typical_ns = 0, tail_ns = 0, shortfall_ns = 0;
};

void FitAll(const Population& population, std::span<const double> counts, double quantile, Fits* fits) {
  const std::span<const double> total(population.total_ns);
  const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double mean = population.mean_weight();
  const auto at = [&](double p, std::vector<stats::Weighted>* fit, double* value) {
    const stats::QuantileAt found = stats::FindQuantile(counts, sum, p);
    *value = total[found.index];
    stats::FitAround(total, counts, found.index, stats::HalfWidth(sum, mean, p), *value, fit);
    return found;
  };
  at(kTypicalQuantile, &fits->typical, &fits->typical_ns);
  fits->tail_at = at(quantile, &fits->tail, &fits->tail_ns);
  stats::FitShortfall(counts, sum, quantile, fits->tail_at, &fits->shortfall);
  fits->shortfall_ns = 0;
  for (const stats::Weighted& w : fits->shortfall) fits->shortfall_ns += w.weight * total[w.index];
}

// Requests by columns, dense, so that one replicate is a few thousand short vector additions.
class Columns {
 public:
  Columns(const Population& population, const Attribution& answer)
      : width_(answer.lines.size() + answer.groups.size()), values_(width_ * population.size(), 0.0) {
    std::vector<int> line_of(population.components.size(), -1), group_of(population.groups.size(), -1);
    int at = 0;
    for (const Column& c : answer.lines) line_of[c.id] = at++;
    for (const Column& c : answer.groups) group_of[c.id] = at++;
    for (size_t i = 0; i < population.size(); ++i) {
      double* row = values_.data() + i * width_;
      for (const Cell& cell : population.Row(i)) {
        const int line = line_of[cell.component], group = group_of[population.components[cell.component].group];
        if (line >= 0) row[line] += cell.ns;
        if (group >= 0) row[group] += cell.ns;
      }
    }
  }

  size_t width() const { return width_; }

  void Sum(const std::vector<stats::Weighted>& fit, std::vector<double>* out) const {
    out->assign(width_, 0.0);
    double* sum = out->data();
    for (const stats::Weighted& w : fit) {
      const double* row = values_.data() + w.index * width_;
      for (size_t k = 0; k < width_; ++k) sum[k] += w.weight * row[k];
    }
  }

 private:
  size_t width_;
  std::vector<double> values_;
};

void PickListed(std::vector<Column> all, size_t limit, std::vector<Column>* out) {
  const auto size = [](const Column& c) { return std::max(c.share_of_excess, c.share_of_shortfall); };
  std::stable_sort(all.begin(), all.end(), [&](const Column& a, const Column& b) { return size(a) > size(b); });
  for (const Column& c : all) {
    if (out->size() < limit && size(c) >= kListedShareMin) out->push_back(c);
  }
}

// Lists with each group its largest line, and with each line its group: many small lines can be one large group (a span
// name that holds an id is another line for each request), and a line that shrinks can make a group smaller than its
// largest line.
void ListTogether(const Population& population, const std::vector<Column>& lines, const std::vector<Column>& groups,
                  Attribution* answer) {
  const auto size = [](const Column& c) { return std::max(c.share_of_excess, c.share_of_shortfall); };
  std::vector<bool> has_line(groups.size()), is_listed(groups.size());
  for (const Column& group : answer->groups) is_listed[group.id] = true;
  for (const Column& line : answer->lines) {
    const uint32_t group = population.components[line.id].group;
    has_line[group] = true;
    if (is_listed[group]) continue;
    is_listed[group] = true;
    answer->groups.push_back(groups[group]);
  }
  for (const Column& group : answer->groups) {
    if (has_line[group.id]) continue;
    const std::vector<uint32_t>& members = population.groups[group.id].components;
    answer->lines.push_back(lines[*std::max_element(
        members.begin(), members.end(), [&](uint32_t a, uint32_t b) { return size(lines[a]) < size(lines[b]); })]);
  }
}

void Bootstrap(const Population& population, const Reference& reference, uint64_t seed, Attribution* answer) {
  const Columns columns(population, *answer);
  const size_t n = population.size(), width = columns.width();
  std::vector<std::vector<double>> shares(width), shortfall_shares(width);
  std::vector<double> tails, counts(n), typical(width), tail(width), shortfall(width);
  std::vector<double> fixed(width);
  for (size_t k = 0; k < width; ++k) {
    const size_t lines = answer->lines.size();
    fixed[k] = k < lines ? answer->lines[k].typical_ns : answer->groups[k - lines].typical_ns;
  }
  std::vector<uint32_t> drawn;
  stats::BlockBootstrap bootstrap(n, answer->dependence.block_length, seed);
  Fits fits;
  for (int r = 0; r < stats::kReplicates; ++r) {
    bootstrap.Draw(&drawn);
    for (size_t j = 0; j < n; ++j) {
      const uint32_t i = population.arrivals[j];
      counts[i] = drawn[j] * population.weights[i];
    }
    FitAll(population, counts, answer->quantile, &fits);
    tails.push_back(fits.tail_ns);
    if (!reference.fixed) columns.Sum(fits.typical, &typical);
    const std::vector<double>& base = reference.fixed ? fixed : typical;
    const double base_ns = reference.fixed ? reference.total_ns : fits.typical_ns;
    columns.Sum(fits.tail, &tail);
    columns.Sum(fits.shortfall, &shortfall);
    for (size_t k = 0; k < width; ++k) {
      shares[k].push_back(ShareOf(tail[k] - base[k], fits.tail_ns - base_ns));
      shortfall_shares[k].push_back(ShareOf(shortfall[k] - base[k], fits.shortfall_ns - base_ns));
    }
  }
  answer->tail_ci_ns = stats::PercentileInterval(&tails);
  for (size_t k = 0; k < width; ++k) {
    const size_t lines = answer->lines.size();
    Column& column = k < lines ? answer->lines[k] : answer->groups[k - lines];
    column.share_ci = stats::PercentileInterval(&shares[k]);
    column.shortfall_ci = stats::PercentileInterval(&shortfall_shares[k]);
  }
}

// Parts of the reference for every component of the population.
std::vector<double> ReferenceParts(const Population& population, const Reference& reference) {
  std::vector<double> parts(population.components.size(), 0.0);
  for (size_t c = 0; c < parts.size(); ++c) {
    const Component& component = population.components[c];
    const auto at = reference.parts_ns.find(
        ComponentKey(population.paths[component.path], component.cause, component.blame_kind, component.blame_name));
    if (at != reference.parts_ns.end()) parts[c] = at->second;
  }
  return parts;
}

void SetShares(const Attribution& answer, Column* column) {
  column->share_of_excess = ShareOf(column->excess_ns(), answer.tail_ns - answer.typical_ns);
  column->share_of_shortfall = ShareOf(column->shortfall_excess_ns(), answer.shortfall_ns - answer.typical_ns);
}

}  // namespace

std::vector<double> ComponentParts(const Population& population, const std::vector<stats::Weighted>& fit) {
  std::vector<double> parts(population.components.size(), 0.0);
  for (const stats::Weighted& w : fit) {
    for (const Cell& cell : population.Row(w.index)) parts[cell.component] += w.weight * cell.ns;
  }
  return parts;
}

Attribution Attribute(const Population& population, double quantile, const Reference& reference, uint64_t seed) {
  Attribution answer;
  answer.quantile = quantile;
  Fits fits;
  FitAll(population, population.weights, quantile, &fits);
  answer.tail_at = fits.tail_at;
  answer.tail_ns = fits.tail_ns;
  answer.shortfall_ns = fits.shortfall_ns;
  answer.typical_ns = reference.fixed ? reference.total_ns : fits.typical_ns;

  const std::vector<double> typical =
      reference.fixed ? ReferenceParts(population, reference) : ComponentParts(population, fits.typical);
  const std::vector<double> tail = ComponentParts(population, fits.tail);
  const std::vector<double> shortfall = ComponentParts(population, fits.shortfall);
  std::vector<Column> lines(population.components.size()), groups(population.groups.size());
  for (uint32_t c = 0; c < lines.size(); ++c) {
    lines[c] = Column{c, typical[c], tail[c], shortfall[c], 0, 0, {}, {}};
    SetShares(answer, &lines[c]);
    Column& group = groups[population.components[c].group];
    group.id = population.components[c].group;
    group.typical_ns += typical[c];
    group.tail_ns += tail[c];
    group.shortfall_ns += shortfall[c];
  }
  for (Column& group : groups) SetShares(answer, &group);
  PickListed(lines, kLinesMax, &answer.lines);
  PickListed(groups, kGroupsMax, &answer.groups);
  ListTogether(population, lines, groups, &answer);

  // The rest is what is left, so that the listed lines and the rest add up whatever rounding did. With a fixed
  // reference it also holds the reference's components that do not occur here.
  answer.rest = Column{0, answer.typical_ns, answer.tail_ns, answer.shortfall_ns, 0, 0, {}, {}};
  for (const Column& line : answer.lines) {
    answer.rest.typical_ns -= line.typical_ns;
    answer.rest.tail_ns -= line.tail_ns;
    answer.rest.shortfall_ns -= line.shortfall_ns;
  }
  SetShares(answer, &answer.rest);

  std::vector<double> by_arrival(population.size());
  for (size_t j = 0; j < by_arrival.size(); ++j) by_arrival[j] = population.total_ns[population.arrivals[j]];
  answer.dependence = stats::TestDependence(by_arrival, answer.tail_ns);
  answer.typical_fit = std::move(fits.typical);
  answer.tail_fit = std::move(fits.tail);
  answer.shortfall_fit = std::move(fits.shortfall);
  Bootstrap(population, reference, seed, &answer);
  return answer;
}

}  // namespace tailspan::analyze
