#include "benchmarks/collectives/collective_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <span>

#include "benchmarks/collectives/collective_case.h"

namespace cohort::bench {
namespace {

// Returns three significant digits, two below 1.
std::string short_number(std::optional<double> value) {
  if (!value) return "-";
  if (*value < 0.995) return *value < 0.00095 ? "<0.001" : fmt::format("{:#.2g}", *value);
  return fmt::format("{:.{}f}", *value, *value < 9.995 ? 2 : *value < 99.95 ? 1 : 0);
}

// Returns the title of a block of lines.
std::string title_of(const CollectiveCase& what) {
  std::string title = name_of(what.op);
  if (what.op != Op::kBarrier) title += std::string(", ") + name_of(what.dtype);
  title += fmt::format(", {} ranks", what.num_ranks);
  if (what.memory == Memory::kShared) title += ", tensors in shared memory";
  if (what.memory == Memory::kAllocator) title += ", tensors of the shared allocator";
  return title;
}

// Rows of the same case.
using Rows = std::span<const Row>;

CollectiveCase case_of(const Row& row) { return parse_case(row.case_name).value_or(CollectiveCase{}); }

// Returns the first rows for which `is_same` is true together with the very first one.
template <class IsSame>
Rows first_group(Rows rows, IsSame is_same) {
  const auto end =
      std::find_if_not(rows.begin(), rows.end(), [&](const Row& row) { return is_same(rows.front(), row); });
  return rows.first(static_cast<size_t>(end - rows.begin()));
}

std::vector<std::string> rival_names(Rows rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) {
    if (std::find(names.begin(), names.end(), row.rival_name) == names.end()) names.push_back(row.rival_name);
  }
  return names;
}

std::string ours_columns(const Row& row, const CollectiveCase& what) {
  std::optional<double> speed, mean, p99;
  if (row.ours && what.num_bytes > 0) speed = static_cast<double>(what.num_bytes) / *row.ours / 1e3;
  if (row.ours_spread) mean = row.ours_spread->mean;
  if (row.ours_spread) p99 = row.ours_spread->p99;
  return fmt::format("  {:>7} {:>9} {:>9} {:>9} {:>6}", what.num_bytes > 0 ? format_size(what.num_bytes) : "",
                     short_number(row.ours), short_number(mean), short_number(p99), short_number(speed));
}

// Returns "[1.2 1.4]", or "1.1..1.5" if the pairs are too few for bounds.
std::string bounds_column(const Row& row) {
  if (!row.bounds) return "";
  const std::string low = short_number(row.bounds->low), high = short_number(row.bounds->high);
  return row.is_range() ? fmt::format("{}..{}", low, high) : fmt::format("[{} {}]", low, high);
}

std::string rival_columns(const Row* row) {
  if (!row) return fmt::format(" | {:>30}", "");
  return fmt::format(" | {:>9} {:>6} {:<13}", short_number(row->rival), short_number(row->ratio), bounds_column(*row));
}

std::string header(const std::vector<std::string>& rivals) {
  std::string text = fmt::format("  {:>7} {:>9} {:>9} {:>9} {:>6}", "size", "ours p50", "mean", "p99", "GB/s");
  for (const std::string& rival : rivals) text += fmt::format(" | {:>9} {:>6} {:<13}", rival, "ratio", "95 % bounds");
  return text + "\n";
}

// Whether medians and means disagree: a median depends on half of the calls, and if ranks share cores, the others may differ.
bool differ(const Row& row) {
  if (!row.ratio || !row.ratio_of_means || row.rival_name == "roof") return false;
  const double factor = *row.ratio_of_means / *row.ratio;
  const bool is_won_by_one =
      std::min(*row.ratio, *row.ratio_of_means) < 0.9 && std::max(*row.ratio, *row.ratio_of_means) > 1.1;
  return factor < 0.5 || factor > 2 || is_won_by_one;
}

// Tensors in shared memory are measured beside private ones, but shown after them: sorts rows in the order in which their titles
// first appear.
std::vector<Row> sorted_by_title(const std::vector<Row>& rows) {
  std::map<std::string, size_t> places;
  std::vector<std::vector<Row>> blocks;
  for (const Row& row : rows) {
    const size_t place = places.try_emplace(title_of(case_of(row)), blocks.size()).first->second;
    if (place == blocks.size()) blocks.emplace_back();
    blocks[place].push_back(row);
  }
  std::vector<Row> sorted;
  for (const auto& block : blocks) sorted.insert(sorted.end(), block.begin(), block.end());
  return sorted;
}

std::string line_of(Rows rows, const std::vector<std::string>& rivals) {
  std::string text = ours_columns(rows.front(), case_of(rows.front()));
  for (const std::string& rival : rivals) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.rival_name == rival; });
    text += rival_columns(found == rows.end() ? nullptr : &*found);
  }
  return text + "\n";
}

std::string block_of(Rows rows) {
  const auto rivals = rival_names(rows);
  std::string text = "\n" + title_of(case_of(rows.front())) + "\n" + header(rivals);
  while (!rows.empty()) {
    const Rows line = first_group(rows, [](const Row& a, const Row& b) { return a.case_name == b.case_name; });
    text += line_of(line, rivals);
    rows = rows.subspan(line.size());
  }
  return text;
}

std::string remarks_on(Rows rows) {
  std::string text;
  for (const Row& row : rows) {
    if (!differ(row)) continue;
    text += fmt::format("  {}, {}: {} by medians, {} by means\n", row.case_name, row.rival_name,
                        short_number(row.ratio), short_number(row.ratio_of_means));
  }
  return text.empty() ? "" : "\nRatios that depend on how calls are summed up:\n" + text;
}

}  // namespace

std::string collectives_table(const std::vector<Row>& rows) {
  std::string text =
      "us per call; ratio = rival / ours, above 1: ours is faster; roof: its time / ours, 1 is the limit\n";
  const auto sorted = sorted_by_title(rows);
  for (Rows left = sorted; !left.empty();) {
    const Rows block =
        first_group(left, [](const Row& a, const Row& b) { return title_of(case_of(a)) == title_of(case_of(b)); });
    text += block_of(block);
    left = left.subspan(block.size());
  }
  return text + remarks_on(rows) + "\n";
}

}  // namespace cohort::bench
