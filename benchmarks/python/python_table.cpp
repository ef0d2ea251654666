#include "benchmarks/python/python_table.h"

#include <fmt/core.h>

namespace cohort::bench {
namespace {

using Times = std::map<std::string, std::vector<double>>;

constexpr const char* kOurs = "cohort";
constexpr const char* kFloor = "fake";
constexpr const char* kRival = "gloo";

std::vector<double> differences(std::vector<double> times, const std::vector<double>& floor) {
  for (size_t i = 0; i < times.size(); ++i) times[i] -= floor[i];
  return times;
}

// If noise hides the time that ours adds, gives an upper bound instead of a ratio.
Row added_row(const Times& times) {
  const auto& floor = times.at(kFloor);
  const auto& ours = times.at(kOurs);
  const auto& rival = times.at(kRival);
  Row row = compare_added_times({.ours = ours, .ours_plain = floor, .rival = rival, .rival_plain = floor});
  if (row.ratio) return row;
  const double least = median_bounds(differences(rival, floor)).low;
  const double most = median_bounds(differences(ours, floor)).high;
  row.note = least <= 0
                 ? "noise hides what gloo adds"
                 : fmt::format("noise hides what cohort adds: at most {:.3f} ms, {:.2f} of what gloo adds at least",
                               most, most / least);
  return row;
}

std::string milliseconds(const std::optional<double>& value) { return value ? fmt::format("{:.3f}", *value) : "-"; }

// Returns "1.21 [1.18, 1.25]": our figure as a multiple of the rival's.
std::string share(const Row& row) {
  if (!row.ratio) return "-";
  std::string text = fmt::format("{:.2f}", 1 / *row.ratio);
  const char* const form = row.is_range() ? " {:.2f}..{:.2f}" : " [{:.2f}, {:.2f}]";
  if (row.bounds) text += fmt::format(fmt::runtime(form), 1 / row.bounds->high, 1 / row.bounds->low);
  return text;
}

}  // namespace

std::vector<Row> python_rows(const std::string& name, const Times& times, const std::string& why_absent) {
  Row beside_floor, beside_rival, added;
  if (times.contains(kOurs)) {
    beside_floor = compare_times(times.at(kOurs), times.at(kFloor));
    beside_rival = compare_times(times.at(kOurs), times.at(kRival));
    added = added_row(times);
  } else {
    beside_floor.note = beside_rival.note = added.note = why_absent;
    if (times.contains(kFloor)) {
      beside_floor.rival = median(times.at(kFloor));
      beside_rival.rival = median(times.at(kRival));
      added.rival = median(differences(times.at(kRival), times.at(kFloor)));
    }
  }
  beside_floor.rival_name = kFloor;
  beside_rival.rival_name = added.rival_name = kRival;
  beside_floor.case_name = beside_rival.case_name = name + "/ranks=2";
  added.case_name = name + "/ranks=2/added";
  std::vector<Row> rows{beside_floor, beside_rival, added};
  for (Row& row : rows) row.unit = "ms";
  return rows;
}

std::string python_table(const std::vector<Row>& rows) {
  std::string text = "milliseconds per step; added: above the floor, fake\n";
  const auto add_line = [&](const auto&... words) {
    text += fmt::format("  {:<34}  {:>9}  {:>9}  {:>9}  {:<18}  {:>9}  {:>9}  {:<18}  {:>5}", words...);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  };
  add_line("case", kFloor, kOurs, kRival, "cohort / fake", kOurs, kRival, "cohort / gloo", "");
  add_line("", "", "", "", "", "added", "added", "added", "pairs");
  for (size_t i = 0; i + 2 < rows.size(); i += 3) {
    const Row& floor = rows[i];
    const Row& rival = rows[i + 1];
    const Row& added = rows[i + 2];
    const auto pairs = added.num_pairs > 0 ? std::to_string(added.num_pairs) : "";
    add_line(floor.case_name, milliseconds(floor.rival), milliseconds(floor.ours), milliseconds(rival.rival),
             share(floor), milliseconds(added.ours), milliseconds(added.rival), share(added), pairs);
    if (!added.note.empty()) text += "    " + added.note + "\n";
  }
  return text;
}

}  // namespace cohort::bench
