#include "cohort/checkpoint/checkpointer/checkpointer.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <atomic>
#include <thread>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/base/numbers/given_count.h"
#include "cohort/checkpoint/checkpointer/default_format.h"
#include "cohort/checkpoint/checkpointer/save_round.h"
#include "cohort/checkpoint/checkpointer/stop_signals.h"
#include "cohort/checkpoint/sharded/snapshot.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/files/checkpoints/checkpoint_draft.h"

namespace cohort::checkpoint {
namespace {

using SaveClock = std::chrono::steady_clock;

[[noreturn]] void refuse_options(const std::string& text) {
  C10_THROW_ERROR(ValueError, c10::str("[cohort] Checkpointer: ", text));
}

void check_numbers(const CheckpointerOptions& options) {
  const auto wrong = base::count_error({{"every_steps", options.every_steps},
                                        {"every", options.every},
                                        {"snapshot_every_steps", options.snapshot_every_steps},
                                        {"keep_last", options.keep_last},
                                        {"keep_every", options.keep_every}});
  if (wrong) refuse_options(*wrong);
  if (options.keep_best < 0) refuse_options(fmt::format("keep_best is not negative, but got {}", options.keep_best));
}

CheckpointerOptions completed(CheckpointerOptions options) {
  check_numbers(options);
  if (!options.keep_last && (options.keep_every || options.keep_best > 0)) {
    refuse_options(
        "keep_every and keep_best say what is kept besides the last ones, but without keep_last all are kept\n"
        "  hint: set keep_last to at least 1");
  }
  if (!options.format.save && !options.format.load) options.format = default_format();
  if (!options.format.save || !options.format.load) refuse_options("its format lacks a function to save or to load");
  return options;
}

// Returns all ranks, in a group of their own for CPU tensors, whatever the default group is for. `purpose`: the group's name in
// errors.
comm::RankExchange ranks_for(const std::string& purpose) {
  if (!is_initialized() || get_world_size() == 1) return comm::RankExchange({});
  return comm::RankExchange(new_group({}, {.backend = get_backend() == "shm" ? "shm" : "gloo", .group_desc = purpose}));
}

}  // namespace

class Checkpointer::State {
 public:
  State(std::string folder, CheckpointerOptions options)
      : folder_(std::move(folder)),
        options_(completed(std::move(options))),
        front_(ranks_for("checkpoints: agreement")),
        back_(ranks_for("checkpoints: saves")),
        signals_(options_.stop_signals),
        lock_(folder_) {
    refuse_folder_of_others();
    if (!front_.is_first()) return;
    for (const auto& name : files::remove_leftovers(folder_)) {
      base::log_info(fmt::format("Checkpointer: removed \"{}/{}\", which a killed run has left", folder_, name));
    }
  }

  ~State() {
    finish();
    if (is_unheard_ && front_.is_first()) base::log_warning(comm::without_mark(last_error_));
  }

  bool save(const ShardedStateDict& state, int64_t step, const SaveInfo& info, WhenBusy when_busy) {
    if (step < 0)
      C10_THROW_ERROR(ValueError, c10::str("[cohort] Checkpointer: a step is not negative, but got ", step));
    if (when_busy == WhenBusy::kRefuse && *front_.from_first(std::string(is_saving_ ? "busy" : "")) == "busy")
      return false;
    wait();
    copy_.take(state);
    begin(step, info);
    if (!options_.asynchronous) wait();
    return true;
  }

  bool maybe_save(const std::function<ShardedStateDict()>& state, int64_t step, const SaveInfo& info) {
    const bool is_stop = hear_ranks(step);
    const bool is_due = is_stop || is_time_ || (options_.every_steps && step % *options_.every_steps == 0);
    const bool keeps_copy = options_.snapshot_every_steps && step % *options_.snapshot_every_steps == 0;
    if (!is_due && !keeps_copy) return false;
    const ShardedStateDict current = state();
    if (keeps_copy) {
      snapshot_step_ = -1;  // until the copy is complete
      snapshot_.take(current);
      snapshot_step_ = step;
    }
    // A run's last save is never refused.
    return is_due && save(current, step, info, is_stop ? WhenBusy::kWait : options_.when_busy);
  }

  void wait() {
    finish();
    if (!is_unheard_) return;
    is_unheard_ = false;
    TORCH_CHECK(false, last_error_);
  }

  void save_after_exception() {
    if (back_.group()) set_pg_timeout(options_.exception_timeout, back_.group());
    finish();
    const auto steps = back_.largest({snapshot_step_, -snapshot_step_});
    if (steps[0] < 0) return;
    TORCH_CHECK(steps[0] == -steps[1], "[cohort] ranks have copies of different steps");
    if (saved_step_ == snapshot_step_) return;
    const auto error = save_together(back_, options_.format, request(snapshot_step_, snapshot_.state(), {}));
    TORCH_CHECK(error.empty(), comm::without_mark(error));
    if (back_.is_first())
      base::log_warning(fmt::format("Checkpointer: saved step {} after an exception", snapshot_step_));
  }

  std::optional<SavedCheckpoint> find(std::optional<int64_t> step = {}) {
    finish();
    return find_together(front_, folder_, check(), step);
  }
  void read(ShardedStateDict& state, const SavedCheckpoint& saved) {
    options_.format.load(state, saved.folder, front_.group());
  }

  const std::string& folder() const { return folder_; }
  const CheckpointerOptions& options() const { return options_; }
  const std::string& last_error() const { return last_error_; }
  bool stop_requested() const { return stops_; }

 private:
  files::CheckpointCheck check() const {
    return options_.verify_checksums ? files::CheckpointCheck::kChecksums : files::CheckpointCheck::kSizes;
  }

  SaveRequest request(int64_t step, const ShardedStateDict& state, const SaveInfo& info) {
    return {.root = folder_,
            .step = step,
            .state = &state,
            .info = info,
            .rules = {.keep_last = options_.keep_last,
                      .keep_every = options_.keep_every,
                      .keep_best = options_.keep_best,
                      .highest_is_best = options_.highest_is_best},
            .lock = &lock_};
  }

  // Throws only if this object saves by itself. Others learn of the lock at their first save.
  void refuse_folder_of_others() {
    if (!options_.every_steps && !options_.every && options_.stop_signals.empty()) return;
    const auto locked = front_.is_first() ? lock_.take_if_possible() : base::Result<void>();
    comm::or_throw(front_.from_first(locked ? comm::StepResult(std::string()) : locked.error()), "Checkpointer");
  }

  void begin(int64_t step, const SaveInfo& info) {
    last_save_ = SaveClock::now();
    saving_step_ = step;
    is_saving_ = true;
    thread_ = std::thread([this, request = request(step, copy_.state(), info)] {
      outcome_ = save_together(back_, options_.format, request);
      if (!outcome_.empty() && options_.on_error == OnSaveError::kContinue && back_.is_first()) {
        base::log_warning(comm::without_mark(outcome_));
      }
      is_saving_ = false;
    });
  }

  // Ends the running save and takes its outcome.
  void finish() {
    if (!thread_.joinable()) return;
    thread_.join();
    last_error_ = std::exchange(outcome_, {});
    is_unheard_ = !last_error_.empty() && options_.on_error == OnSaveError::kThrow;
    if (last_error_.empty()) saved_step_ = saving_step_;
  }

  // Sets is_time_ and stops_; returns true the first time that a stop is requested. Exchanges a few numbers, if that can matter.
  bool hear_ranks(int64_t step) {
    const bool is_time = front_.is_first() && options_.every && SaveClock::now() - last_save_ >= *options_.every;
    std::vector<int64_t> heard{is_time, signals_.seen(), step, -step};
    if (options_.every || !options_.stop_signals.empty()) heard = front_.largest(heard);
    TORCH_CHECK(heard[2] == -heard[3], "[cohort] Checkpointer: maybe_save() was called with step ", -heard[3],
                " on one rank and with step ", heard[2],
                " on another\n  hint: call it on all ranks after each step, with the same number");
    is_time_ = heard[0] != 0;
    return heard[1] != 0 && !std::exchange(stops_, true);
  }

  const std::string folder_;
  const CheckpointerOptions options_;
  /// Used by the caller's thread and by the saving thread.
  const comm::RankExchange front_;
  const comm::RankExchange back_;
  const StopSignals signals_;
  FolderLock lock_;

  detail::Snapshot copy_;
  detail::Snapshot snapshot_;
  int64_t snapshot_step_ = -1;
  SaveClock::time_point last_save_ = SaveClock::now();
  bool is_time_ = false;
  bool stops_ = false;

  std::thread thread_;
  std::atomic<bool> is_saving_ = false;
  /// Written by the saving thread until it is joined.
  std::string outcome_;
  int64_t saving_step_ = -1;
  int64_t saved_step_ = -1;
  std::string last_error_;
  bool is_unheard_ = false;
};

Checkpointer::Checkpointer(std::string folder, CheckpointerOptions options)
    : state_(std::make_unique<State>(std::move(folder), std::move(options))) {}

Checkpointer::~Checkpointer() = default;

bool Checkpointer::save(const ShardedStateDict& state, int64_t step, const SaveInfo& info) {
  return state_->save(state, step, info, state_->options().when_busy);
}

bool Checkpointer::maybe_save(const std::function<ShardedStateDict()>& state, int64_t step, const SaveInfo& info) {
  return state_->maybe_save(state, step, info);
}

bool Checkpointer::stop_requested() const { return state_->stop_requested(); }

void Checkpointer::wait() { state_->wait(); }

const std::string& Checkpointer::last_error() const { return state_->last_error(); }

void Checkpointer::run(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    try {
      state_->save_after_exception();
    } catch (const std::exception& error) {
      base::log_warning("Checkpointer: nothing was saved after an exception: " + comm::text_of(error));
    }
    throw;
  }
}

std::optional<SavedCheckpoint> Checkpointer::latest() { return state_->find(); }

std::optional<int64_t> Checkpointer::load_latest(ShardedStateDict& state) {
  const auto saved = state_->find();
  if (!saved) return std::nullopt;
  state_->read(state, *saved);
  return saved->step;
}

SavedCheckpoint Checkpointer::load(ShardedStateDict& state, int64_t step) {
  auto saved = state_->find(step);
  TORCH_CHECK(saved.has_value(), "[cohort] Checkpointer: \"", state_->folder(),
              "\" has no complete checkpoint of step ", step,
              "\n  hint: call latest() for the newest one, or list all with `cohort ckpt ls ", state_->folder(), "`");
  state_->read(state, *saved);
  return std::move(*saved);
}

}  // namespace cohort::checkpoint
