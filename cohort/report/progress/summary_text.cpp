#include "cohort/report/progress/summary_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "cohort/report/terminal/figures.h"
#include "cohort/report/terminal/text_table.h"

namespace cohort::report {
namespace {

using Share = std::optional<double> EpochResult::*;

double total_seconds(const std::vector<EpochResult>& epochs) {
  double seconds = 0.0;
  for (const EpochResult& epoch : epochs) seconds += epoch.seconds;
  return seconds;
}

// Returns the mean over the epochs that have the share, weighted by their time.
std::optional<double> mean_share(const std::vector<EpochResult>& epochs, Share share) {
  double sum = 0.0, seconds = 0.0;
  for (const EpochResult& epoch : epochs) {
    if (!(epoch.*share)) continue;
    sum += *(epoch.*share) * epoch.seconds;
    seconds += epoch.seconds;
  }
  return seconds > 0.0 ? std::optional(sum / seconds) : std::nullopt;
}

// Returns the share that remains without waiting.
std::optional<double> busy_share(std::optional<double> data, std::optional<double> communication) {
  if (!data || !communication) return std::nullopt;
  return std::max(0.0, 1.0 - *data - *communication);
}

std::string share_cell(std::optional<double> share) { return share ? percent_text(*share) : ""; }

std::vector<std::string> names_of_metrics(const std::vector<EpochResult>& epochs) {
  std::vector<std::string> names;
  for (const EpochResult& epoch : epochs) {
    for (const auto& [name, value] : epoch.metrics) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string metric_cell(const EpochResult& epoch, const std::string& name) {
  const auto found =
      std::find_if(epoch.metrics.begin(), epoch.metrics.end(), [&](const auto& value) { return value.first == name; });
  return found == epoch.metrics.end() ? "" : metric_text(found->second);
}

std::string rate_cell(const EpochResult& epoch, const SummaryOptions& options) {
  if (epoch.seconds <= 0.0) return "";
  return rate_text(static_cast<double>(epoch.num_samples) / epoch.seconds, options.unit);
}

std::string table_of(const std::vector<EpochResult>& epochs, const SummaryOptions& options) {
  const std::vector<std::string> names = names_of_metrics(epochs);
  TextTable table;
  table.add_column("epoch");
  table.add_column("time");
  for (const std::string& name : names) table.add_column(name);
  for (const char* title : {"speed", "data", "comm", "busy"}) table.add_column(title);
  for (const EpochResult& epoch : epochs) {
    std::vector<std::string> row = {std::to_string(epoch.epoch + 1), clock_text(epoch.seconds)};
    for (const std::string& name : names) row.push_back(metric_cell(epoch, name));
    row.push_back(rate_cell(epoch, options));
    row.push_back(share_cell(epoch.data_wait_share));
    row.push_back(share_cell(epoch.communication_share));
    row.push_back(share_cell(busy_share(epoch.data_wait_share, epoch.communication_share)));
    table.add_row(std::move(row));
  }
  return table.text();
}

std::string total_line(const std::vector<EpochResult>& epochs, const SummaryOptions& options) {
  int64_t num_samples = 0;
  for (const EpochResult& epoch : epochs) num_samples += epoch.num_samples;
  const double seconds = total_seconds(epochs);
  std::string line =
      fmt::format("total: {} in {} epoch{}", clock_text(seconds), epochs.size(), epochs.size() == 1 ? "" : "s");
  if (seconds > 0.0) {
    const double rate = static_cast<double>(num_samples) / seconds;
    line += ", " + rate_text(rate, options.unit);
    if (options.world_size > 1) {
      line +=
          fmt::format(" by {} ranks, {} each", options.world_size, rate_text(rate / options.world_size, options.unit));
    }
  }
  return line + "\n";
}

std::string hints(const std::vector<EpochResult>& epochs, const SummaryOptions& options) {
  std::string text;
  const auto data = mean_share(epochs, &EpochResult::data_wait_share);
  const auto communication = mean_share(epochs, &EpochResult::communication_share);
  const auto cpu = mean_share(epochs, &EpochResult::cpu_share);
  if (data && *data > options.low_data) {
    text += fmt::format(
        "hint: ranks waited for data {} of the time; give the loader more workers (num_workers), or make "
        "samples cheaper to read\n",
        percent_text(*data));
  }
  if (communication && *communication > options.low_communication) {
    text += fmt::format(
        "hint: ranks waited for each other {} of the time; use larger batches, or accumulate gradients over "
        "several before a step\n",
        percent_text(*communication));
  }
  if (text.empty() && cpu && *cpu < options.low_cpu) {
    text += fmt::format(
        "hint: the ranks used {} of their CPUs; more threads (OMP_NUM_THREADS), larger batches or more ranks "
        "may use the rest\n",
        percent_text(*cpu));
  }
  return text;
}

}  // namespace

std::string summary_text(const std::vector<EpochResult>& epochs, const SummaryOptions& options) {
  if (epochs.empty()) return "";
  return table_of(epochs, options) + total_line(epochs, options) + hints(epochs, options);
}

}  // namespace cohort::report
