#include "benchmarks/train/train_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>

#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

constexpr size_t kTrainPartCount = 4;
constexpr const char* kOurTrainFloor = "ours-floor";
constexpr const char* kPythonTrainFloor = "python-floor";
constexpr const char* kPythonTraining = "python-ddp-gloo";

std::vector<TrainBlock> parse_train_steps(const std::string& answer) {
  std::vector<double> numbers;
  for (const auto& word : base::split(answer, ' ')) {
    const auto number = base::parse_double(word);
    if (!number) throw std::runtime_error(fmt::format("a rank answered \"{}\" for the parts of its steps", answer));
    numbers.push_back(*number);
  }
  if (numbers.size() % kTrainPartCount != 0)
    throw std::runtime_error(fmt::format("a rank answered with {} numbers for the parts of its steps", numbers.size()));
  std::vector<TrainBlock> steps;
  for (size_t i = 0; i < numbers.size(); i += kTrainPartCount) {
    steps.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  }
  return steps;
}

TrainBlock mean_of(const std::vector<TrainBlock>& blocks) {
  TrainBlock sum;
  for (const auto& block : blocks) {
    sum.data += block.data;
    sum.forward += block.forward;
    sum.backward += block.backward;
    sum.step += block.step;
  }
  const auto count = static_cast<double>(blocks.size());
  return {sum.data / count, sum.forward / count, sum.backward / count, sum.step / count};
}

using TrainFigure = double (*)(const TrainBlock&);
double data_of(const TrainBlock& block) { return block.data; }
double forward_of(const TrainBlock& block) { return block.forward; }
double backward_of(const TrainBlock& block) { return block.backward; }
double step_of(const TrainBlock& block) { return block.step; }
double passes_of(const TrainBlock& block) { return block.passes(); }
double total_of(const TrainBlock& block) { return block.total(); }

class TrainTable {
 public:
  TrainTable(const TrainCase& what, int num_ranks, const TrainBlocks& blocks)
      : what_(what), num_ranks_(num_ranks), blocks_(blocks) {}

  std::vector<Row> rows() {
    const std::string ours = fastest("ours-").value();
    const auto python = fastest("python-"), fused = fastest("python-fused-");
    const std::pair<const char*, std::optional<std::string>> others[] = {{"/shared-allocator", fastest("ours-shared-")},
                                                                         {"/trainer", fastest("trainer-")}};
    add_rate("", ours, python, kPythonTraining);
    if (fused) add_rate("", ours, fused, "python-fused");
    for (const auto& name : other_workers(ours, python)) add_rate("", ours, name, name);
    for (const auto& [part, name] : others) {
      if (name) add_rate(part, *name, python, kPythonTraining);
    }
    add_outside("", ours, python, kPythonTraining);
    if (fused) add_outside("", ours, fused, "python-fused");
    for (const auto& [part, name] : others) {
      if (name) add_outside(part, *name, python, kPythonTraining);
    }
    add_parts(ours, python);
    return std::move(rows_);
  }

 private:
  // The name continues with a number of workers.
  static bool is_kind(const std::string& name, const std::string& kind) {
    return name.starts_with(kind) && base::parse_int(name.substr(kind.size())).has_value();
  }
  std::optional<std::string> fastest(const std::string& kind) const {
    std::optional<std::string> best;
    for (const auto& [name, blocks] : blocks_) {
      if (is_kind(name, kind) && (!best || median(series(name, total_of)) < median(series(*best, total_of))))
        best = name;
    }
    return best;
  }
  // Returns both sides' slower numbers of workers.
  std::vector<std::string> other_workers(const std::string& ours, const std::optional<std::string>& python) const {
    std::vector<std::string> names;
    for (const auto& [name, blocks] : blocks_) {
      if ((is_kind(name, "ours-") && name != ours) || (is_kind(name, "python-") && name != python))
        names.push_back(name);
    }
    return names;
  }
  std::vector<double> series(const std::string& name, TrainFigure figure) const {
    std::vector<double> figures;
    for (const auto& block : blocks_.at(name)) figures.push_back(figure(block));
    return figures;
  }

  Row compared(const std::string& ours, const std::optional<std::string>& rival, TrainFigure figure) const {
    if (rival) return compare_times(series(ours, figure), series(*rival, figure));
    Row row;
    row.ours = median(series(ours, figure));
    row.note = "there is no Python with PyTorch in .venv";
    return row;
  }

  // Compares the times above each side's floor; if `one_floor`, above ours.
  Row above_floor(const std::string& ours, const std::optional<std::string>& rival, TrainFigure figure,
                  bool one_floor) const {
    const auto floor = series(kOurTrainFloor, passes_of);
    const std::string& other = rival ? *rival : ours;
    const bool has_own_floor = rival && !one_floor;
    Row row = compare_added_times({.ours = series(ours, figure),
                                   .ours_plain = floor,
                                   .rival = series(other, figure),
                                   .rival_plain = has_own_floor ? series(kPythonTrainFloor, passes_of) : floor});
    if (rival) return row;
    Row alone;
    alone.ours = row.ours;
    alone.note = "there is no Python with PyTorch in .venv";
    return alone;
  }

  void add(Row row, const std::string& part, const std::string& rival_name, const std::string& unit) {
    row.case_name = fmt::format("{}/ranks={}{}", what_.name, num_ranks_, part);
    row.rival_name = rival_name;
    row.unit = unit;
    rows_.push_back(std::move(row));
  }

  void add_rate(const std::string& part, const std::string& ours, const std::optional<std::string>& rival,
                const std::string& rival_name) {
    Row row = compared(ours, rival, total_of);
    if (rival) row.note = fmt::format("{}: {:.1f} ms a step, {}: {:.1f}", ours, *row.ours, *rival, *row.rival);
    const auto units = static_cast<double>(what_.batch_size * what_.units_per_sample * num_ranks_);
    for (auto* const figure : {&row.ours, &row.rival}) {
      if (*figure) *figure = 1e3 * units / **figure;
    }
    add(std::move(row), part, rival_name, what_.unit);
  }

  void add_outside(const std::string& part, const std::string& ours, const std::optional<std::string>& rival,
                   const std::string& rival_name) {
    for (const bool one_floor : {false, true}) {
      Row row = above_floor(ours, rival, total_of, one_floor);
      if (row.ratio) row.note = fmt::format("ours is {:.2f} of {}'s", 1 / *row.ratio, rival_name);
      add(std::move(row), part + "/outside-kernels" + (one_floor ? "/one-floor" : ""), rival_name, "ms");
    }
  }

  void add_parts(const std::string& ours, const std::optional<std::string>& python) {
    const std::optional<std::string> floor = python ? std::optional<std::string>(kPythonTrainFloor) : std::nullopt;
    const auto add_part = [this](const char* part, Row row) {
      add(std::move(row), std::string("/part=") + part, kPythonTraining, "ms");
    };
    add_part("data", compared(ours, python, data_of));
    add_part("forward", compared(kOurTrainFloor, floor, forward_of));
    add_part("backward", compared(kOurTrainFloor, floor, backward_of));
    add_part("communication", above_floor(ours, python, passes_of, false));
    add_part("step", compared(ours, python, step_of));
  }

  const TrainCase& what_;
  int num_ranks_;
  const TrainBlocks& blocks_;
  std::vector<Row> rows_;
};

}  // namespace

TrainBlock train_block(const std::vector<std::string>& answers, bool is_floor) {
  std::vector<std::vector<TrainBlock>> ranks;
  for (const auto& answer : answers) {
    ranks.push_back(parse_train_steps(answer));
    if (ranks.back().size() != ranks.front().size())
      throw std::runtime_error("ranks answered for different numbers of steps");
  }
  std::vector<TrainBlock> steps;
  for (size_t i = 0; i < ranks.front().size(); ++i) {
    std::vector<TrainBlock> of_ranks;
    for (const auto& rank : ranks) of_ranks.push_back(rank[i]);
    const auto slower = std::max_element(of_ranks.begin(), of_ranks.end(),
                                         [](const auto& a, const auto& b) { return a.passes() < b.passes(); });
    steps.push_back(is_floor ? *slower : mean_of(of_ranks));
  }
  return mean_of(steps);
}

std::vector<Row> train_rows(const TrainCase& what, int num_ranks, const TrainBlocks& blocks) {
  return TrainTable(what, num_ranks, blocks).rows();
}

}  // namespace cohort::bench
