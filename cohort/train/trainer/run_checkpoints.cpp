#include "cohort/train/trainer/run_checkpoints.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <utility>

#include "cohort/train/trainer/callback.h"

namespace cohort::train::detail {

RunCheckpoints::RunCheckpoints(TrainerCore& core, RunState& state)
    : core_(core),
      state_(state),
      options_(core.options().checkpoint),
      monitor_saved_(core.metrics().times_set(options_.monitor)) {}

void RunCheckpoints::tell_where(const std::string& what) {
  const auto& position = core_.position();
  core_.progress().print(
      fmt::format("resumes after {} (epoch {}, batch {})", what, position.epoch(), position.batch()));
}

void RunCheckpoints::resume() {
  const auto saved = open_folder();
  if (!options_.memory_every_steps) {
    load(saved);
    return;
  }
  memory_ = std::make_unique<checkpoint::MemorySnapshot>(
      state_.in_memory(), checkpoint::MemorySnapshotOptions{.every_steps = *options_.memory_every_steps});
  const auto resumed = memory_->resume([&] { return load(saved); }, saved ? std::optional(saved->step) : std::nullopt);
  const bool is_from_memory =
      resumed.from == checkpoint::ResumedFrom::kMemory || resumed.from == checkpoint::ResumedFrom::kOtherMemory;
  if (is_from_memory) tell_where(resumed.describe());
}

// Opens the newest checkpoint of the folder.
std::optional<checkpoint::SavedCheckpoint> RunCheckpoints::open_folder() {
  if (options_.folder.empty()) {
    TORCH_CHECK_VALUE(options_.resume != Resume::kMust || core_.options().fast_dev_run > 0,
                      "[cohort] Trainer: checkpoint.resume = Resume::kMust needs checkpoint.folder");
    return std::nullopt;
  }
  folder_ = std::make_unique<checkpoint::Checkpointer>(
      options_.folder, checkpoint::CheckpointerOptions{.every_steps = options_.every_steps,
                                                       .every = options_.every,
                                                       .stop_signals = options_.stop_signals,
                                                       .asynchronous = options_.asynchronous,
                                                       .keep_last = options_.keep_last,
                                                       .keep_best = options_.keep_best,
                                                       .highest_is_best = options_.highest_is_best});
  auto saved = folder_->latest();
  TORCH_CHECK_VALUE(
      saved || options_.resume != Resume::kMust, "[cohort] Trainer: there is no checkpoint in \"", options_.folder,
      "\" to resume from\n  hint: set checkpoint.resume = Resume::kIfThere to begin a new run in this case");
  return saved;
}

// Returns the step of the loaded checkpoint. Collective.
std::optional<int64_t> RunCheckpoints::load(const std::optional<checkpoint::SavedCheckpoint>& saved) {
  if (!saved) return std::nullopt;
  TORCH_CHECK_VALUE(options_.resume != Resume::kNever || RunState::is_of_this_job(saved->info.metadata),
                    "[cohort] Trainer: \"", options_.folder, "\" has checkpoints of another run, up to step ",
                    saved->step,
                    ", so a new run cannot begin there\n  hint: remove the folder, name another one, or set "
                    "checkpoint.resume = Resume::kIfThere");
  state_.fit_to(saved->info.metadata);
  auto state = state_.expected();
  folder_->load(state, saved->step);
  state_.restore(state);
  last_ = {.step = saved->step, .metric = saved->info.metric, .is_within_epoch = core_.position().batch() > 0};
  tell_where(fmt::format("step {} of \"{}\"", saved->step, options_.folder));
  return saved->step;
}

checkpoint::ShardedStateDict RunCheckpoints::collect() {
  core_.tell(&Callback::on_save_checkpoint, core_.position().step());
  return state_.collect();
}

// The metric belongs to the first checkpoint after it was computed (the `times_set`-th time), and to a checkpoint that replaces
// that one.
checkpoint::SaveInfo RunCheckpoints::save_info(int64_t times_set) const {
  checkpoint::SaveInfo info{.metadata = state_.metadata()};
  if (times_set != monitor_saved_) info.metric = core_.metrics().find(options_.monitor);
  if (!info.metric && last_.step == core_.position().step()) info.metric = last_.metric;
  return info;
}

void RunCheckpoints::note_saved(const checkpoint::SaveInfo& info, int64_t times_set) {
  const auto& position = core_.position();
  last_ = {.step = position.step(), .metric = info.metric, .is_within_epoch = position.batch() > 0};
  monitor_saved_ = times_set;
}

void RunCheckpoints::after_step() {
  const int64_t step = core_.position().step();
  if (memory_) {
    // All ranks' shards of a buffer must be shards of the same tensor. Keeping a state is not a collective.
    if (step % *options_.memory_every_steps == 0) core_.strategy().synchronize_buffers();
    memory_->step(step);
  }
  if (!folder_) return;
  const int64_t times_set = core_.metrics().times_set(options_.monitor);
  const auto info = save_info(times_set);
  const auto get_state = [&] { return collect(); };
  if (folder_->maybe_save(get_state, step, info)) note_saved(info, times_set);
}

void RunCheckpoints::after_epoch() {
  const auto every = options_.every_epochs;
  if (every && core_.position().epoch() % *every == 0) save();
}

void RunCheckpoints::finish() {
  save();
  if (folder_) folder_->wait();
}

// Saves, unless the checkpoint already exists.
void RunCheckpoints::save() {
  const auto& position = core_.position();
  const bool is_there = last_.step == position.step() && last_.is_within_epoch == (position.batch() > 0);
  if (!folder_ || is_there || position.step() == 0) return;
  auto state = collect();
  const int64_t times_set = core_.metrics().times_set(options_.monitor);
  const auto info = save_info(times_set);
  folder_->save(state, position.step(), info);
  note_saved(info, times_set);
}

}  // namespace cohort::train::detail
