#include "cohort/report/progress/epoch_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "cohort/base/text/text.h"
#include "cohort/report/terminal/figures.h"

namespace cohort::report {
namespace {

constexpr int kBarColumns = 12;
// Parts with larger numbers are left out first on a narrow terminal.
enum Importance : uint8_t {
  kTitle,
  kDone,
  kFirstMetric,
  kTimeLeft,
  kRate,
  kMetric,
  kShare,
  kBar,
  kRatePerRank,
  kMemory
};

std::string of_total(int64_t part, std::optional<int64_t> total) {
  return total ? fmt::format("{}/{}", part, *total) : std::to_string(part);
}

std::string bar_of(const EpochFigures& figures) {
  const double part = static_cast<double>(figures.step) / static_cast<double>(std::max<int64_t>(*figures.num_steps, 1));
  const auto filled = static_cast<int>(std::clamp(part, 0.0, 1.0) * kBarColumns);
  const bool has_head = filled > 0 && filled < kBarColumns;
  return fmt::format("[{}{}{}]", std::string(static_cast<size_t>(has_head ? filled - 1 : filled), '='),
                     has_head ? ">" : "", std::string(static_cast<size_t>(kBarColumns - filled), ' '));
}

void add_title(std::vector<LinePart>& parts, const EpochFigures& figures) {
  const std::string number = figures.epoch ? " " + of_total(*figures.epoch + 1, figures.num_epochs) : "";
  parts.push_back({figures.label + number, kTitle});
}

void add_metrics(std::vector<LinePart>& parts, const EpochFigures& figures) {
  for (size_t i = 0; i < figures.metrics.size(); ++i) {
    const auto& [name, value] = figures.metrics[i];
    parts.push_back({fmt::format("{} {}", name, metric_text(value)), i == 0 ? kFirstMetric : kMetric});
  }
}

void add_speed(std::vector<LinePart>& parts, const EpochFigures& figures) {
  if (figures.seconds > 0.0 && figures.num_samples > 0) {
    const double rate = static_cast<double>(figures.num_samples) / figures.seconds;
    parts.push_back({rate_text(rate, figures.unit), kRate, true});
    if (figures.world_size > 1) {
      parts.push_back(
          {fmt::format("{} per rank", rate_text(rate / figures.world_size, figures.unit)), kRatePerRank, true});
    }
  }
  if (figures.data_wait_share) parts.push_back({"data " + percent_text(*figures.data_wait_share), kShare, true});
  if (figures.communication_share)
    parts.push_back({"comm " + percent_text(*figures.communication_share), kShare, true});
}

void add_memory(std::vector<LinePart>& parts, const EpochFigures& figures) {
  if (figures.memory_bytes) parts.push_back({base::format_bytes(*figures.memory_bytes), kMemory, true});
}

void add_time_left(std::vector<LinePart>& parts, const EpochFigures& figures) {
  const int64_t steps_here = figures.step - figures.first_step;
  if (!figures.num_steps || steps_here <= 0) return;
  const double left =
      figures.seconds / static_cast<double>(steps_here) * static_cast<double>(*figures.num_steps - figures.step);
  parts.push_back({"ETA " + clock_text(left), kTimeLeft, true});
}

}  // namespace

std::vector<LinePart> epoch_parts(const EpochFigures& figures, bool has_bar) {
  std::vector<LinePart> parts;
  add_title(parts, figures);
  if (has_bar && figures.num_steps) parts.push_back({bar_of(figures), kBar});
  parts.push_back({"step " + of_total(figures.step, figures.num_steps), kDone});
  add_metrics(parts, figures);
  add_speed(parts, figures);
  add_time_left(parts, figures);
  add_memory(parts, figures);
  return parts;
}

std::vector<LinePart> ended_epoch_parts(const EpochFigures& figures) {
  std::vector<LinePart> parts;
  add_title(parts, figures);
  const int64_t steps_here = figures.step - figures.first_step;
  parts.push_back(
      {fmt::format("{} step{} in {}", steps_here, steps_here == 1 ? "" : "s", clock_text(figures.seconds)), kDone});
  add_metrics(parts, figures);
  add_speed(parts, figures);
  add_memory(parts, figures);
  return parts;
}

}  // namespace cohort::report
