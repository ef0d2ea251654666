#include "cohort/parallel/optim/model_averager.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <set>
#include <string>

#include "cohort/base/log/log.h"
#include "cohort/comm/group/job_warning.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/optim/average_parameters.h"

namespace cohort::optim {
namespace {

constexpr const char* kNoNeedToAverage =
    ", no need to use model averaging because the communication cost of all-reducing parameters will be no less than "
    "the "
    "cost of all-reducing gradients by DistributedDataParallel in the backward pass. Therefore, only "
    "DistributedDataParallel should be used for this case.";

void check_warmup_steps(int64_t warmup_steps) {
  TORCH_CHECK_VALUE(warmup_steps >= 0, "Arg ``warmup_steps`` must be a non-negative number.");
}

void check_periods(const std::vector<PeriodGroupSize>& period_group_sizes, int overall_size) {
  TORCH_CHECK_VALUE(!period_group_sizes.empty(), "[cohort] Arg ``period_group_sizes`` must not be empty.");
  TORCH_CHECK_VALUE(period_group_sizes.front().first > 0,
                    "The minimum period in arg ``period_group_sizes`` must be a positive value.");
  std::set<int64_t> periods;
  for (const auto& [period, size] : period_group_sizes) {
    TORCH_CHECK_VALUE(period > 0 && periods.insert(period).second, "[cohort] The period ", period,
                      " in arg ``period_group_sizes`` must be positive and unique.");
  }
  TORCH_CHECK_VALUE(period_group_sizes.back().second == overall_size, "The last value in arg ``period_group_sizes`` ",
                    period_group_sizes.back().second, " must be equal to the size of arg ``process_group`` ",
                    overall_size, ".");
  for (const auto& [period, size] : period_group_sizes) {
    TORCH_CHECK_VALUE(size > 0 && overall_size % size == 0, "[cohort] The group size ", size, " of period ", period,
                      " in arg ``period_group_sizes`` must divide the size of arg ``process_group`` ", overall_size,
                      ".");
  }
}

}  // namespace

ModelAverager::ModelAverager(Group process_group)
    : process_group_(process_group ? std::move(process_group) : default_group()) {}

ModelAverager::~ModelAverager() = default;

void ModelAverager::average_parameters(const Tensors& parameters) {
  if (const auto group = group_of_this_step()) average_parameters_or_parameter_groups(parameters, group);
  ++step;
}

void ModelAverager::average_parameters(const torch::optim::Optimizer& optimizer) {
  if (const auto group = group_of_this_step()) average_parameters_or_parameter_groups(optimizer, group);
  ++step;
}

PeriodicModelAverager::PeriodicModelAverager(int64_t period, int64_t warmup_steps, Group process_group)
    : ModelAverager(std::move(process_group)), period_(period), warmup_steps_(warmup_steps) {
  check_warmup_steps(warmup_steps);
  TORCH_CHECK_VALUE(period >= 1, "Arg ``period`` must be a positive value.");
  if (period == 1) comm::warn_once_per_job(std::string("When period is 1") + kNoNeedToAverage);
}

Group PeriodicModelAverager::group_of_this_step() const {
  const bool is_due = step >= warmup_steps_ && (step - warmup_steps_) % period_ == 0;
  return is_due ? process_group() : Group();
}

HierarchicalModelAverager::HierarchicalModelAverager(const std::vector<PeriodGroupSize>& period_group_sizes,
                                                     int64_t warmup_steps, const Group& process_group)
    : ModelAverager(process_group), warmup_steps_(warmup_steps) {
  const int overall_size = is_member(process_group) ? this->process_group()->getSize() : -1;
  check_periods(period_group_sizes, overall_size);
  check_warmup_steps(warmup_steps);
  if (period_group_sizes.back().first == 1) {
    comm::warn_once_per_job(std::string("When the maximum period in arg ``period_group_sizes`` is 1") +
                            kNoNeedToAverage);
  }
  base::log_info("Model averaging hierarchy:");
  for (const auto& [period, size] : period_group_sizes) {
    base::log_info(fmt::format(
        "\tEach group that has {} processes average parameters every {} iterations, if no higher-level averaging.",
        size, period));
    groups_.emplace_back(
        period, size == overall_size ? this->process_group() : new_subgroups(size, this->process_group()).first);
  }
}

Group HierarchicalModelAverager::group_of_this_step() const {
  if (step < warmup_steps_) return {};
  for (auto entry = groups_.rbegin(); entry != groups_.rend(); ++entry) {
    if (step % entry->first == 0) return entry->second;
  }
  return {};
}

}  // namespace cohort::optim
