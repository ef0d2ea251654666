#include "cohort/report/records/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <string_view>

#include "cohort/base/text/json_text.h"
#include "cohort/base/text/utf8.h"

namespace cohort::report {
namespace {

constexpr size_t kShownOfName = 100;

base::Result<void> check_metric_name(const std::string& name) {
  if (name.empty()) return base::Error("a metric has no name");
  if (name == "step" || name == "time") {
    return base::Error(
        fmt::format("a metric is called \"{}\", which each record has already; give it another name", name));
  }
  if (name == "hyperparameters") {
    return base::Error(
        "a metric is called \"hyperparameters\", which is the name of a line of its own; give it another name");
  }
  if (!base::is_utf8(name)) {
    return base::Error(
        fmt::format("the name of a metric is not UTF-8: {}", base::json_string(name.substr(0, kShownOfName))));
  }
  const auto is_control = [](unsigned char letter) { return letter < 0x20 || letter == 0x7f; };
  if (std::any_of(name.begin(), name.end(), is_control)) {
    return base::Error(fmt::format("the name of a metric holds a line break or another control character: {}",
                                   base::json_string(name.substr(0, kShownOfName))));
  }
  return {};
}

}  // namespace

double wall_time_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string number_text(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

base::Result<void> check_record(const RunRecord& record) {
  if (record.step < 0) return base::Error(fmt::format("a step is not negative, but got {}", record.step));
  for (auto value = record.values.begin(); value != record.values.end(); ++value) {
    if (auto checked = check_metric_name(value->first); !checked) return checked.error();
    const auto is_same = [&](const auto& other) { return other.first == value->first; };
    if (std::any_of(record.values.begin(), value, is_same)) {
      return base::Error(
          fmt::format("the metric \"{}\" comes twice in one record", value->first.substr(0, kShownOfName)));
    }
  }
  return {};
}

base::Result<void> check_hyperparameters(const HyperparameterList& values) {
  std::set<std::string> names;
  for (const auto& [name, value] : values) {
    if (names.insert(base::valid_utf8(name)).second) continue;
    return base::Error(
        fmt::format("the hyper-parameter {} comes twice", base::json_string(name.substr(0, kShownOfName))));
  }
  return {};
}

}  // namespace cohort::report
