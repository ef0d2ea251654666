#include "benchmarks/support/report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "benchmarks/support/value_or_throw.h"
#include "cohort/base/file/atomic_file.h"

namespace cohort::bench {
namespace {

std::string number(const std::optional<double>& value) {
  if (!value) return "-";
  return std::abs(*value) >= 100 ? fmt::format("{:.1f}", *value) : fmt::format("{:.3f}", *value);
}

std::string bounds_text(const Row& row) {
  if (!row.bounds) return "";
  if (row.is_range()) return fmt::format("{:.3f}..{:.3f}", row.bounds->low, row.bounds->high);
  return fmt::format("[{:.3f}, {:.3f}]", row.bounds->low, row.bounds->high);
}

nlohmann::ordered_json json_number(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

void add_spread(nlohmann::ordered_json& json, const std::string& whose, const std::optional<Spread>& spread) {
  if (!spread) return;
  json[whose + "_min"] = spread->min;
  json[whose + "_p50"] = spread->p50;
  json[whose + "_p99"] = spread->p99;
  json[whose + "_mean"] = spread->mean;
}

nlohmann::ordered_json to_json(const Row& row) {
  nlohmann::ordered_json json = {{"question", row.question}, {"case", row.case_name}};
  json["ours"] = json_number(row.ours);
  json["rival"] = json_number(row.rival);
  json["rival_name"] = row.rival_name;
  json["unit"] = row.unit;
  json["ratio"] = json_number(row.ratio);
  if (row.bounds) {
    json["ratio_low"] = row.bounds->low;
    json["ratio_high"] = row.bounds->high;
    json["bounds"] = row.is_range() ? "range" : "95 %";
  }
  if (row.num_pairs > 0) json["pairs"] = row.num_pairs;
  add_spread(json, "ours", row.ours_spread);
  add_spread(json, "rival", row.rival_spread);
  if (row.ratio_of_means) json["ratio_mean"] = *row.ratio_of_means;
  if (!row.note.empty()) json["note"] = row.note;
  return json;
}

}  // namespace

Row compare_times(const std::vector<double>& ours, const std::vector<double>& rival) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(rival[i] / ours[i]);
  Row row;
  row.ours = median(ours);
  row.rival = median(rival);
  row.ratio = median(ratios);
  row.bounds = median_bounds(ratios);
  row.num_pairs = ours.size();
  return row;
}

Row compare_added_times(const AddedTimes& times) {
  std::vector<double> ours, rival;
  for (size_t i = 0; i < times.ours.size(); ++i) {
    ours.push_back(times.ours[i] - times.ours_plain[i]);
    rival.push_back(times.rival[i] - times.rival_plain[i]);
  }
  Row row;
  row.ours = median(ours);
  row.rival = median(rival);
  row.num_pairs = ours.size();
  if (median_bounds(ours).low <= 0 || median_bounds(rival).low <= 0) return row;
  row.ratio = *row.rival / *row.ours;
  row.bounds = bootstrap_bounds(ours.size(), [&](const std::vector<size_t>& indices) {
    std::vector<double> some_ours, some_rival;
    for (const size_t i : indices) {
      some_ours.push_back(ours[i]);
      some_rival.push_back(rival[i]);
    }
    return median(std::move(some_rival)) / median(std::move(some_ours));
  });
  return row;
}

Row compare_with_budget(const std::vector<double>& ours, const std::vector<double>& floor, double budget) {
  std::vector<double> added;
  for (size_t i = 0; i < ours.size(); ++i) added.push_back(ours[i] - floor[i]);
  const auto bounds = median_bounds(added);
  Row row;
  row.ours = median(added);
  row.rival = budget;
  row.rival_name = "budget";
  row.num_pairs = added.size();
  if (bounds.low > 0) {
    row.ratio = budget / *row.ours;
    row.bounds = Interval{budget / bounds.high, budget / bounds.low};
  }
  return row;
}

void print_table(const std::vector<Row>& rows) {
  size_t width = 4;
  size_t rival_width = 5;
  for (const Row& row : rows) {
    width = std::max(width, row.case_name.size());
    rival_width = std::max(rival_width, row.rival_name.size());
  }
  const auto line = [&](const std::string& name, const std::string& ours, const std::string& rival,
                        const std::string& rival_name, const std::string& rest) {
    fmt::print("  {:<{}}  {:>10}  {:>10}  {:<{}}  {}\n", name, width, ours, rival, rival_name, rival_width, rest);
  };
  line("case", "ours", "rival", "rival",
       fmt::format("{:<5} {:>7}  {:<18} {}", "unit", "ratio", "95 % bounds", "pairs"));
  for (const Row& row : rows) {
    const std::string pairs = row.num_pairs > 0 ? std::to_string(row.num_pairs) : "";
    line(row.case_name, number(row.ours), number(row.rival), row.rival_name,
         fmt::format("{:<5} {:>7}  {:<18} {}", row.unit, number(row.ratio), bounds_text(row), pairs));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void write_json(const std::vector<Row>& rows, const std::string& path) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  value_or_throw(base::write_file_atomically(path, list.dump(1) + "\n"));
}

}  // namespace cohort::bench
