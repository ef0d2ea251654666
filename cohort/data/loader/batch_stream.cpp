#include "cohort/data/loader/batch_stream.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/log/log.h"
#include "cohort/base/machine/cpu.h"
#include "cohort/base/system/deadline.h"
#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/group/unshared_batches.h"

namespace cohort::data::detail {
namespace {

using Clock = std::chrono::steady_clock;

// A warning comes only after an epoch that took this long, and waited for much of that time.
constexpr auto kLongEpoch = std::chrono::seconds(5);
constexpr int64_t kManyBatches = 20;
constexpr double kMuchOfIt = 0.2;

double seconds_of(std::chrono::nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

enum class Wait { kNo, kYes };

struct Finished {
  enum class Kind { kBatch, kError, kNothing, kEnd };
  Kind kind = Kind::kNothing;
  std::shared_ptr<void> batch = {};
  std::exception_ptr error = {};
};

// Assigns the steps of an epoch to workers: step i to worker i % W, or to the first free worker if order is free.
class Schedule {
 public:
  Schedule(int num_workers, bool in_order)
      : num_workers_(num_workers), in_order_(in_order), next_of_worker_(num_workers), has_ended_(num_workers) {
    for (int worker = 0; worker < num_workers; ++worker) next_of_worker_[worker] = worker;
  }
  int64_t next(int worker) const { return in_order_ ? next_of_worker_[worker] : next_; }
  int64_t claim(int worker) {
    if (!in_order_) return next_++;
    return std::exchange(next_of_worker_[worker], next_of_worker_[worker] + num_workers_);
  }
  void end(int worker) { has_ended_[worker] = true; }
  // Whether the step will come: if a worker has ended, its unclaimed steps will not.
  bool will_come(int64_t step) const {
    const auto worker = static_cast<int>(step % num_workers_);
    return !has_ended_[worker] || step < next_of_worker_[worker];
  }
  bool have_all_ended() const {
    for (const bool has_ended : has_ended_) {
      if (!has_ended) return false;
    }
    return true;
  }

 private:
  int num_workers_;
  bool in_order_;
  std::vector<int64_t> next_of_worker_;
  std::vector<bool> has_ended_;
  int64_t next_ = 0;
};

struct BatchStream::State {
  State(std::unique_ptr<BatchSource> source_, StreamOptions options_, std::shared_ptr<WorkerThreads> workers_,
        std::unique_ptr<DeviceCopies> copies_)
      : source(std::move(source_)),
        options(options_),
        workers(std::move(workers_)),
        copies(std::move(copies_)),
        schedule(options.num_workers, options.in_order) {}

  void run_worker(const WorkerInfo& info, const std::exception_ptr& init_error);
  Finished read(const WorkerInfo& info, int64_t step);
  Finished instead_of(int64_t step, const std::exception_ptr& init_error) const;
  std::optional<int64_t> claim(int worker);
  std::optional<Finished> take_finished(Wait wait);
  bool is_ready();
  Finished begin_copy(Finished taken);
  void stop();
  bool has_room(int worker) const {
    return schedule.next(worker) < cursor + int64_t{options.num_workers} * options.prefetch_factor;
  }
  std::atomic<int64_t>* skipped() { return options.skips_unreadable ? &num_skipped : nullptr; }

  const std::unique_ptr<BatchSource> source;
  const StreamOptions options;
  const std::shared_ptr<WorkerThreads> workers;
  const std::unique_ptr<DeviceCopies> copies;
  std::optional<Finished> copied_ahead;  // used only by the consumer
  std::atomic<bool> should_stop{false};
  std::atomic<int64_t> num_skipped{0};

  std::mutex mutex;
  std::condition_variable room;
  std::condition_variable ready;
  Schedule schedule;
  int64_t cursor = 0;  // all steps before it have been taken
  std::map<int64_t, Finished> finished;
};

Finished BatchStream::State::read(const WorkerInfo& info, int64_t step) {
  ReadProgress progress(&should_stop, skipped());
  try {
    auto batch = source->read(info.id, step, progress);
    if (!batch) return {.kind = Finished::Kind::kEnd};
    return {.kind = Finished::Kind::kBatch, .batch = std::move(batch)};
  } catch (const StopReading&) {
    return {};
  } catch (const NothingRead&) {
    return {};
  } catch (...) {
    try {
      rethrow_with_story([&](const std::string& reason) {
        return c10::str("[cohort] DataLoader worker thread ", info.id, " of ", info.num_workers, " could not ",
                        source->describe(step, progress), "\n  caused by: ", reason);
      });
    } catch (...) {
      return {.kind = Finished::Kind::kError, .error = std::current_exception()};
    }
  }
}

Finished BatchStream::State::instead_of(int64_t step, const std::exception_ptr& init_error) const {
  if (step >= source->num_batches().value_or(step + 1)) return {.kind = Finished::Kind::kEnd};
  return {.kind = Finished::Kind::kError, .error = init_error};
}

std::optional<int64_t> BatchStream::State::claim(int worker) {
  std::unique_lock lock(mutex);
  room.wait(lock, [&] { return should_stop || has_room(worker); });
  if (should_stop) return std::nullopt;
  return schedule.claim(worker);
}

void BatchStream::State::run_worker(const WorkerInfo& info, const std::exception_ptr& init_error) {
  bool has_ended = false;
  while (!has_ended) {
    const std::optional<int64_t> step = claim(info.id);
    if (!step) return;
    auto result = init_error ? instead_of(*step, init_error) : read(info, *step);
    // If worker_init failed, a worker of an iterable dataset ends here.
    has_ended = result.kind == Finished::Kind::kEnd || (init_error && !source->num_batches());
    const std::lock_guard lock(mutex);
    finished.emplace(*step, std::move(result));
    if (has_ended) schedule.end(info.id);
    ready.notify_one();
  }
}

// In order, waits for the next step that will come. Skips steps of workers that have ended; is ready if all workers have ended.
bool BatchStream::State::is_ready() {
  if (schedule.have_all_ended()) return true;
  if (!options.in_order) return !finished.empty();
  while (!schedule.will_come(cursor)) ++cursor;
  return finished.contains(cursor);
}

// Absent if it would have to wait.
std::optional<Finished> BatchStream::State::take_finished(Wait wait) {
  const comm::HostUnlocked unlocked;  // datasets may need it
  std::unique_lock lock(mutex);
  if (wait == Wait::kNo) {
    if (!is_ready()) return std::nullopt;
  } else if (options.timeout.count() == 0) {
    ready.wait(lock, [&] { return is_ready(); });
  } else {
    TORCH_CHECK(ready.wait_until(lock, base::deadline_after(options.timeout), [&] { return is_ready(); }),
                "DataLoader timed out after ", seconds_of(options.timeout), " seconds");
  }
  if (finished.empty()) return Finished{.kind = Finished::Kind::kEnd};
  Finished result = std::move(finished.extract(finished.begin()).mapped());
  ++cursor;
  room.notify_all();
  if (result.kind == Finished::Kind::kEnd) result.kind = Finished::Kind::kNothing;  // only this worker has ended
  return result;
}

void BatchStream::State::stop() {
  const comm::HostUnlocked unlocked;
  {
    const std::lock_guard lock(mutex);
    should_stop = true;
  }
  room.notify_all();
  if (workers) workers->wait();
}

BatchStream::BatchStream(std::unique_ptr<BatchSource> source, StreamOptions options,
                         std::shared_ptr<WorkerThreads> workers, std::unique_ptr<DeviceCopies> copies)
    : state_(std::make_unique<State>(std::move(source), options, std::move(workers), std::move(copies))),
      begin_(Clock::now()),
      progress_(std::make_shared<EpochProgress>()),
      shared_progress_(progress_) {
  progress_->stats.num_left = state_->source->num_batches();
  if (!state_->workers) return;
  state_->workers->start([state = state_.get()](const WorkerInfo& info,
                                                const std::exception_ptr& error) { state->run_worker(info, error); },
                         options.base_seed);
}

BatchStream::~BatchStream() { state_->stop(); }

std::shared_ptr<void> BatchStream::read_here() {
  ReadProgress progress(nullptr, state_->skipped());
  while (true) {
    try {
      return state_->source->read(/*worker=*/0, state_->cursor++, progress);
    } catch (const NothingRead&) {
      continue;
    }
  }
}

std::shared_ptr<void> BatchStream::take() {
  if (state_->options.num_workers == 0) return read_here();
  while (true) {
    Finished result = *state_->take_finished(Wait::kYes);
    switch (result.kind) {
      case Finished::Kind::kBatch:
        return std::move(result.batch);
      case Finished::Kind::kError:
        std::rethrow_exception(result.error);
      case Finished::Kind::kNothing:
        continue;
      case Finished::Kind::kEnd:
        return nullptr;
    }
  }
}

// An exception becomes the error of this batch.
Finished BatchStream::State::begin_copy(Finished taken) {
  if (taken.kind != Finished::Kind::kBatch) return taken;
  try {
    copies->begin(taken.batch.get());
    return taken;
  } catch (...) {
    return {.kind = Finished::Kind::kError, .error = std::current_exception()};
  }
}

// Without workers copies nothing ahead: it would have to read a batch first, while the program waits for the one that it asked
// for.
std::shared_ptr<void> BatchStream::take_on_device() {
  State& state = *state_;
  std::shared_ptr<void> batch;
  if (state.copied_ahead) {
    const auto ahead = std::exchange(state.copied_ahead, std::nullopt);
    if (ahead->error) std::rethrow_exception(ahead->error);
    batch = ahead->batch;
  } else {
    batch = take();
    if (batch) state.copies->begin(batch.get());
  }
  if (!batch) return nullptr;
  state.copies->finish(batch.get());
  while (state.options.num_workers > 0) {
    auto next = state.take_finished(Wait::kNo);
    if (next && next->kind == Finished::Kind::kNothing) continue;
    if (next) state.copied_ahead = state.begin_copy(std::move(*next));
    break;
  }
  return batch;
}

std::shared_ptr<void> BatchStream::next() {
  auto& [stats, is_over] = *progress_;
  if (is_over) return nullptr;
  const auto begin = Clock::now();
  auto batch = state_->copies ? take_on_device() : take();
  const auto end = Clock::now();
  stats.num_skipped = state_->num_skipped.load(std::memory_order_relaxed);
  is_over = batch == nullptr;
  if (is_over) {
    const auto advice = advice_on_workers(stats, state_->options.num_workers, base::available_cores());
    static std::atomic<bool> has_advised{false};
    if (!advice.empty() && !has_advised.exchange(true)) base::log_warning(advice);
    return nullptr;
  }
  comm::note_batch(state_->options.reads_all_samples);
  ++stats.num_batches;
  if (stats.num_left) --*stats.num_left;
  stats.last_wait = end - begin;
  stats.total_wait += end - begin;
  stats.total = end - begin_;
  return batch;
}

void BatchStream::discard(int64_t num_batches) {
  for (int64_t i = 0; i < num_batches && take(); ++i) continue;
}

std::string advice_on_workers(const EpochStats& stats, int num_workers, int num_cores) {
  const auto share = seconds_of(stats.total_wait) / std::max(seconds_of(stats.total), 1e-9);
  if (stats.num_batches < kManyBatches || stats.total < kLongEpoch || share < kMuchOfIt) return "";
  const auto what =
      fmt::format("the loop over a DataLoader has waited {:.0f} % of its time for data ({:.1f} s of {:.1f} s)",
                  100 * share, seconds_of(stats.total_wait), seconds_of(stats.total));
  if (num_workers < num_cores) {
    return fmt::format("{}: raise num_workers, which is {}; this process has {} cores.", what, num_workers, num_cores);
  }
  return fmt::format(
      "{}, though num_workers is {} and this process has {} cores: reading takes longer than training. Prepare the "
      "data beforehand, or choose cheaper transforms.",
      what, num_workers, num_cores);
}

}  // namespace cohort::data::detail
