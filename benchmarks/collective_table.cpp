#include "benchmarks/collective_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "benchmarks/collective_case.h"

namespace cohort::bench {
namespace {

// Three digits that count, two below 1.
std::string short_number(std::optional<double> value) {
  if (!value) return "-";
  if (*value < 0.995) return *value < 0.00095 ? "<0.001" : fmt::format("{:#.2g}", *value);
  return fmt::format("{:.{}f}", *value, *value < 9.995 ? 2 : *value < 99.95 ? 1 : 0);
}

// The lines of one block have this in common.
std::string title_of(const CollectiveCase& what) {
  std::string title = name_of(what.op);
  if (what.op != Op::kBarrier) title += std::string(", ") + name_of(what.dtype);
  title += fmt::format(", {} ranks", what.num_ranks);
  return what.memory == Memory::kShared ? title + ", tensors in shared memory" : title;
}

std::vector<std::string> rival_names(const std::vector<Row>& rows) {
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

std::string rival_columns(const Row* row) {
  if (!row) return fmt::format(" | {:>30}", "");
  const auto bounds = row->bounds
                          ? fmt::format("[{} {}]", short_number(row->bounds->low), short_number(row->bounds->high))
                          : std::string();
  return fmt::format(" | {:>9} {:>6} {:<13}", short_number(row->rival), short_number(row->ratio), bounds);
}

std::string header(const std::vector<std::string>& rivals) {
  std::string text = fmt::format("  {:>7} {:>9} {:>9} {:>9} {:>6}", "size", "ours p50", "mean", "p99", "GB/s");
  for (const std::string& rival : rivals) text += fmt::format(" | {:>9} {:>6} {:<13}", rival, "ratio", "95 % bounds");
  return text + "\n";
}

// Half of the calls decide a median: where ranks share cores, the others may tell another story.
bool differ(const Row& row) {
  if (!row.ratio || !row.ratio_of_means || row.rival_name == "roof") return false;
  const double factor = *row.ratio_of_means / *row.ratio;
  const bool is_won_by_one =
      std::min(*row.ratio, *row.ratio_of_means) < 0.9 && std::max(*row.ratio, *row.ratio_of_means) > 1.1;
  return factor < 0.5 || factor > 2 || is_won_by_one;
}

}  // namespace

std::string collectives_table(const std::vector<Row>& rows) {
  const auto rivals = rival_names(rows);
  std::string text =
      "us per call; ratio = rival / ours, above 1: ours is faster; roof: its time / ours, 1 is the limit\n";
  std::string remarks, last_title;
  for (size_t i = 0; i < rows.size();) {
    const auto what = parse_case(rows[i].case_name).value_or(CollectiveCase{});
    const std::string title = title_of(what);
    if (title != last_title) text += "\n" + title + "\n" + header(rivals);
    last_title = title;
    size_t end = i;
    while (end < rows.size() && rows[end].case_name == rows[i].case_name) ++end;
    text += ours_columns(rows[i], what);
    for (const std::string& rival : rivals) {
      const auto found =
          std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(i), rows.begin() + static_cast<std::ptrdiff_t>(end),
                       [&](const Row& row) { return row.rival_name == rival; });
      const bool is_there = found != rows.begin() + static_cast<std::ptrdiff_t>(end);
      text += rival_columns(is_there ? &*found : nullptr);
      if (is_there && differ(*found)) {
        remarks += fmt::format("  {}, {}: {} by medians, {} by means\n", found->case_name, rival,
                               short_number(found->ratio), short_number(found->ratio_of_means));
      }
    }
    text += "\n";
    i = end;
  }
  if (!remarks.empty()) text += "\nRatios that depend on how calls are summed up:\n" + remarks;
  return text + "\n";
}

}  // namespace cohort::bench
