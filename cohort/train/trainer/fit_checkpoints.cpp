// Of FitLoop: what a run goes on from, and what it saves.
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <utility>

#include "cohort/train/trainer/fit_loop.h"

namespace cohort::train::detail {

void FitLoop::resume() {
  const auto& options = options_.checkpoint;
  const auto saved = saved_checkpoint();
  if (options.memory_every == 0) {
    load(saved);
    return;
  }
  memory_ = std::make_unique<checkpoint::MemorySnapshot>(
      state_.in_memory(), checkpoint::MemorySnapshotOptions{.every = options.memory_every});
  const auto resumed = memory_->resume([&] { return load(saved); }, saved ? std::optional(saved->step) : std::nullopt);
  const bool is_from_memory =
      resumed.from == checkpoint::ResumedFrom::kMemory || resumed.from == checkpoint::ResumedFrom::kOtherMemory;
  if (is_from_memory) tell_where(resumed.describe());
}

// The newest of the folder.
std::optional<checkpoint::SavedCheckpoint> FitLoop::saved_checkpoint() {
  const auto& options = options_.checkpoint;
  if (options.folder.empty()) {
    TORCH_CHECK_VALUE(options.resume != Resume::kMust || options_.fast_dev_run > 0,
                      "[cohort] Trainer: checkpoint.resume = Resume::kMust needs checkpoint.folder");
    return std::nullopt;
  }
  checkpoints_ = std::make_unique<checkpoint::Checkpointer>(
      options.folder, checkpoint::CheckpointerOptions{.every_steps = options.every_steps,
                                                      .every = options.every,
                                                      .stop_signals = options.stop_signals,
                                                      .asynchronous = options.asynchronous,
                                                      .keep_last = options.keep_last,
                                                      .keep_best = options.keep_best,
                                                      .highest_is_best = options.highest_is_best});
  auto saved = checkpoints_->latest();
  TORCH_CHECK_VALUE(saved || options.resume != Resume::kMust, "[cohort] Trainer: there is no checkpoint in \"",
                    options.folder, "\" to go on from\n  hint: checkpoint.resume = Resume::kIfThere begins anew then");
  return saved;
}

// Collective. The step of what was loaded.
std::optional<int64_t> FitLoop::load(const std::optional<checkpoint::SavedCheckpoint>& saved) {
  if (!saved) return std::nullopt;
  const auto& options = options_.checkpoint;
  TORCH_CHECK_VALUE(options.resume != Resume::kNever || RunState::is_of_this_job(saved->info.metadata),
                    "[cohort] Trainer: \"", options.folder, "\" has checkpoints of another run, up to step ",
                    saved->step,
                    ", so this one cannot begin anew there\n  hint: remove the folder, name another one, or go on: "
                    "checkpoint.resume = Resume::kIfThere");
  state_.fit_to(saved->info.metadata);
  auto state = state_.expected();
  checkpoints_->load(saved->step, state);
  state_.restore(state);
  last_saved_ = saved->step;
  last_metric_ = saved->info.metric;
  was_saved_within_epoch_ = core_.counters.batch > 0;
  tell_where(fmt::format("step {} of \"{}\"", saved->step, options_.checkpoint.folder));
  return saved->step;
}

checkpoint::ShardedStateDict FitLoop::collect() {
  core_.each_callback([&](Callback& callback) { callback.on_save_checkpoint(core_.trainer, core_.counters.step); });
  return state_.collect();
}

// The metric counts for the first checkpoint after it was computed, which was the `times`-th, and for what takes the place of
// that one.
checkpoint::SaveInfo FitLoop::save_info(int64_t times) const {
  checkpoint::SaveInfo info{.metadata = state_.metadata()};
  if (times != monitor_saved_) info.metric = core_.metric(options_.checkpoint.monitor);
  if (!info.metric && last_saved_ == core_.counters.step) info.metric = last_metric_;
  return info;
}

void FitLoop::note_saved(const checkpoint::SaveInfo& info, int64_t times) {
  last_saved_ = core_.counters.step;
  last_metric_ = info.metric;
  was_saved_within_epoch_ = core_.counters.batch > 0;
  monitor_saved_ = times;
}

void FitLoop::save_if_due() {
  if (!checkpoints_) return;
  const int64_t times = core_.times_set(options_.checkpoint.monitor);
  const auto info = save_info(times);
  if (checkpoints_->maybe_save(
          core_.counters.step, [&] { return collect(); }, info))
    note_saved(info, times);
}

void FitLoop::save(bool is_end_of_run) {
  if (!checkpoints_) return;
  const auto& counters = core_.counters;
  const bool is_there = last_saved_ == counters.step && was_saved_within_epoch_ == (counters.batch > 0);
  if (!is_there && counters.step > 0) {
    auto state = collect();
    const int64_t times = core_.times_set(options_.checkpoint.monitor);
    const auto info = save_info(times);
    checkpoints_->save(counters.step, state, info);
    note_saved(info, times);
  }
  if (is_end_of_run) checkpoints_->wait();
}

}  // namespace cohort::train::detail
