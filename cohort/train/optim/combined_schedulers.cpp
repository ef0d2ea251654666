#include "cohort/train/optim/combined_schedulers.h"

#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cohort/train/optim/reduce_on_plateau.h"
#include "cohort/train/optim/scheduler_field.h"

namespace cohort::optim {
namespace {

using torch::optim::Optimizer;

void check_schedulers(const char* name, const Optimizer& optimizer, const SchedulerList& schedulers) {
  for (size_t i = 0; i < schedulers.size(); ++i) {
    TORCH_CHECK_VALUE(schedulers[i], "[cohort] ", name, ": the scheduler at index ", i, " is null");
    const auto& scheduler = *schedulers[i];
    TORCH_CHECK_VALUE(!dynamic_cast<const ReduceLROnPlateau*>(&scheduler), name,
                      " does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                      "specified when calling `step`, but got one at index ",
                      i, " in the given schedulers sequence.");
    TORCH_CHECK_VALUE(&scheduler.optimizer() == &optimizer, "[cohort] ", name, ": the ", scheduler.name(), " at index ",
                      i, " is of another optimizer than the others");
  }
}

const Optimizer& optimizer_of_first(const SchedulerList& schedulers) {
  TORCH_CHECK_VALUE(!schedulers.empty() && schedulers.front(),
                    "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.");
  return schedulers.front()->optimizer();
}

}  // namespace

SequentialLR::SequentialLR(Optimizer& optimizer, SchedulerList schedulers, std::vector<int64_t> milestones)
    : LRScheduler("SequentialLR", optimizer), schedulers_(std::move(schedulers)), milestones_(std::move(milestones)) {
  TORCH_CHECK_VALUE(!schedulers_.empty(), "SequentialLR expects at least one scheduler, but got no scheduler.");
  check_schedulers(name(), optimizer, schedulers_);
  TORCH_CHECK_VALUE(milestones_.size() + 1 == schedulers_.size(),
                    "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                    "milestone points, but got number of schedulers ",
                    schedulers_.size(), " and the number of milestones to be equal to ", milestones_.size());
  for (size_t i = 1; i < schedulers_.size(); ++i) {
    TORCH_CHECK_VALUE(schedulers_[i]->has_restart(), "[cohort] SequentialLR: a ", schedulers_[i]->name(),
                      " can only be the first scheduler, but is at index ", i,
                      "\n  hint: list its schedulers here, with milestones of their own");
  }
  Rates initial;
  for (size_t i = 0; i < num_groups(); ++i) initial.push_back(note(i, "initial_lr"));
  set_rates(initial);
  last_epoch_ = 0;
  undo();
  const auto first = std::upper_bound(milestones_.begin(), milestones_.end(), 0) - milestones_.begin();
  schedulers_[static_cast<size_t>(first)]->begin();
  last_lr_ = schedulers_[static_cast<size_t>(first)]->get_last_lr();
}

void SequentialLR::undo() {
  for (const auto& scheduler : schedulers_) scheduler->undo();
}

void SequentialLR::step() {
  ++last_epoch_;
  const auto present = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_);
  const auto& scheduler = schedulers_.at(static_cast<size_t>(present - milestones_.begin()));
  const bool begins = present != milestones_.begin() && *(present - 1) == last_epoch_;
  begins ? scheduler->restart() : scheduler->step();
  last_lr_ = scheduler->get_last_lr();
}

LRScheduler::Fields SequentialLR::fields() {
  auto milestones = numbers_field("_milestones", milestones_);
  milestones.read = [this, read = milestones.read](const c10::IValue& value, const std::string& where) {
    TORCH_CHECK_VALUE(items_of(value, where).size() == milestones_.size(), where, " is of ",
                      items_of(value, where).size() + 1, " schedulers, not of ", schedulers_.size());
    return read(value, where);
  };
  return {milestones, number_field("last_epoch", last_epoch_), numbers_field("_last_lr", last_lr_, num_groups()),
          schedulers_field(schedulers_)};
}

ChainedScheduler::ChainedScheduler(SchedulerList schedulers)
    : LRScheduler("ChainedScheduler", const_cast<Optimizer&>(optimizer_of_first(schedulers))),
      schedulers_(std::move(schedulers)) {
  check_schedulers(name(), optimizer(), schedulers_);
}

void ChainedScheduler::undo() {
  for (const auto& scheduler : schedulers_) scheduler->undo();
}

void ChainedScheduler::step() {
  for (const auto& scheduler : schedulers_) scheduler->step();
  last_lr_ = current_rates();
}

LRScheduler::Fields ChainedScheduler::fields() {
  return {numbers_field("_last_lr", last_lr_, num_groups()), schedulers_field(schedulers_)};
}

}  // namespace cohort::optim
