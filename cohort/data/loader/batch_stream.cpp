#include "cohort/data/loader/batch_stream.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <dlfcn.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace cohort::data {
namespace detail {

struct Finished {
  std::shared_ptr<void> batch;
  std::exception_ptr error;
};

// Each step of an epoch belongs to one worker: batch i to worker i % W, or whoever comes first when order is free.
class Schedule {
 public:
  Schedule(int64_t num_batches, int num_workers, bool in_order)
      : num_batches_(num_batches), num_workers_(num_workers), in_order_(in_order), next_of_worker_(num_workers) {
    for (int worker = 0; worker < num_workers; ++worker) next_of_worker_[worker] = worker;
  }
  bool is_done(int worker) const { return next(worker) >= num_batches_; }
  int64_t next(int worker) const { return in_order_ ? next_of_worker_[worker] : next_; }
  int64_t claim(int worker) {
    if (!in_order_) return next_++;
    return std::exchange(next_of_worker_[worker], next_of_worker_[worker] + num_workers_);
  }

 private:
  int64_t num_batches_;
  int num_workers_;
  bool in_order_;
  std::vector<int64_t> next_of_worker_;
  int64_t next_ = 0;
};

}  // namespace detail

namespace {

thread_local const WorkerInfo* current_worker = nullptr;

struct StopReading {};

// Workers compute with one thread each, as in PyTorch. at::set_num_threads would change the whole process; OpenMP's
// setting is the thread's own, and LibTorch leaves it alone once it has set it.
void compute_with_one_thread() {
  at::get_num_threads();
  const auto set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_num_threads) set_num_threads(1);
}

std::string describe_failure(const WorkerInfo& worker, const std::vector<int64_t>& indices, int64_t sample,
                             const std::string& reason) {
  const std::string what =
      sample >= 0 ? c10::str("read sample ", sample) : c10::str("collate the ", indices.size(), " samples of a batch");
  std::string which = sample >= 0 ? "" : "\n  samples:";
  for (size_t i = 0; sample < 0 && i < indices.size(); ++i) {
    which += i < 8 ? c10::str(" ", indices[i]) : i == 8 ? " ..." : "";
  }
  return c10::str("[cohort] DataLoader worker thread ", worker.id, " of ", worker.num_workers, " could not ", what,
                  which, "\n  caused by: ", reason);
}

template <typename Error>
[[noreturn]] void throw_with(const std::string& message) {
  throw Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message);
}

// Throws the error in hand again with the story of the worker before it, as the same LibTorch type where it has one.
[[noreturn]] void rethrow_with_story(const std::function<std::string(const std::string&)>& story) {
  try {
    throw;
  } catch (const c10::IndexError& error) {
    throw_with<c10::IndexError>(story(error.what_without_backtrace()));
  } catch (const c10::ValueError& error) {
    throw_with<c10::ValueError>(story(error.what_without_backtrace()));
  } catch (const c10::TypeError& error) {
    throw_with<c10::TypeError>(story(error.what_without_backtrace()));
  } catch (const c10::NotImplementedError& error) {
    throw_with<c10::NotImplementedError>(story(error.what_without_backtrace()));
  } catch (const c10::OutOfMemoryError& error) {
    throw_with<c10::OutOfMemoryError>(story(error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    throw_with<c10::Error>(story(error.what_without_backtrace()));
  } catch (const std::out_of_range& error) {
    throw_with<c10::IndexError>(story(error.what()));
  } catch (const std::invalid_argument& error) {
    throw_with<c10::ValueError>(story(error.what()));
  } catch (const std::exception& error) {
    throw_with<c10::Error>(story(error.what()));
  } catch (...) {
    throw_with<c10::Error>(story("an exception that is not a std::exception"));
  }
}

}  // namespace

const WorkerInfo* worker_info() { return current_worker; }

namespace detail {

void ReadProgress::begin_sample(int64_t index) {
  // Relaxed: only a request to end early; the results are handed over under the stream's mutex.
  if (should_stop_ && should_stop_->load(std::memory_order_relaxed)) throw StopReading();
  sample_ = index;
}

struct BatchStream::State {
  State(std::vector<std::vector<int64_t>> batches_, ReadBatch read_, StreamOptions options_)
      : batches(std::move(batches_)),
        read(std::move(read_)),
        options(std::move(options_)),
        num_batches(static_cast<int64_t>(batches.size())),
        schedule(num_batches, options.num_workers, options.in_order) {}

  void run_worker(int worker);
  Finished read_batch(const WorkerInfo& info, int64_t number) const;
  std::optional<int64_t> claim(int worker);
  Finished take_finished();
  void stop();
  bool has_room(int worker) const {
    return schedule.next(worker) < num_taken + int64_t{options.num_workers} * options.prefetch_factor;
  }

  const std::vector<std::vector<int64_t>> batches;
  const ReadBatch read;
  const StreamOptions options;
  const int64_t num_batches;
  std::atomic<bool> should_stop{false};

  std::mutex mutex;
  std::condition_variable room;
  std::condition_variable ready;
  Schedule schedule;
  int64_t num_taken = 0;
  std::map<int64_t, Finished> finished;
  std::vector<std::thread> threads;
};

Finished BatchStream::State::read_batch(const WorkerInfo& info, int64_t number) const {
  ReadProgress progress(&should_stop);
  try {
    return {read(batches[number], progress), nullptr};
  } catch (const StopReading&) {
    return {};
  } catch (...) {
    try {
      rethrow_with_story([&](const std::string& reason) {
        return describe_failure(info, batches[number], progress.sample(), reason);
      });
    } catch (...) {
      return {nullptr, std::current_exception()};
    }
  }
}

std::optional<int64_t> BatchStream::State::claim(int worker) {
  std::unique_lock lock(mutex);
  room.wait(lock, [&] { return should_stop || schedule.is_done(worker) || has_room(worker); });
  if (should_stop || schedule.is_done(worker)) return std::nullopt;
  return schedule.claim(worker);
}

void BatchStream::State::run_worker(int worker) {
  const WorkerInfo info{worker, options.num_workers, options.base_seed + worker};
  current_worker = &info;
  compute_with_one_thread();
  std::exception_ptr init_error;
  try {
    if (options.worker_init) options.worker_init(worker);
  } catch (...) {
    try {
      rethrow_with_story([&](const std::string& reason) {
        return c10::str("[cohort] DataLoader worker thread ", worker, " of ", options.num_workers,
                        " failed in worker_init_fn\n  caused by: ", reason);
      });
    } catch (...) {
      init_error = std::current_exception();
    }
  }
  while (const std::optional<int64_t> number = claim(worker)) {
    Finished result = init_error ? Finished{nullptr, init_error} : read_batch(info, *number);
    std::lock_guard lock(mutex);
    finished.emplace(*number, std::move(result));
    ready.notify_one();
  }
  current_worker = nullptr;
}

Finished BatchStream::State::take_finished() {
  std::unique_lock lock(mutex);
  const auto is_ready = [&] { return options.in_order ? finished.contains(num_taken) : !finished.empty(); };
  if (options.timeout.count() == 0) {
    ready.wait(lock, is_ready);
  } else {
    const double seconds = std::chrono::duration<double>(options.timeout).count();
    TORCH_CHECK(ready.wait_for(lock, options.timeout, is_ready), "DataLoader timed out after ", seconds, " seconds");
  }
  Finished result = std::move(finished.extract(finished.begin()).mapped());
  ++num_taken;
  room.notify_all();
  return result;
}

void BatchStream::State::stop() {
  {
    std::lock_guard lock(mutex);
    should_stop = true;
  }
  room.notify_all();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

BatchStream::BatchStream(std::vector<std::vector<int64_t>> batches, ReadBatch read, StreamOptions options)
    : state_(std::make_unique<State>(std::move(batches), std::move(read), std::move(options))) {
  try {
    for (int worker = 0; worker < state_->options.num_workers; ++worker) {
      state_->threads.emplace_back([state = state_.get(), worker] { state->run_worker(worker); });
    }
  } catch (const std::system_error& error) {
    const size_t started = state_->threads.size();
    state_->stop();
    TORCH_CHECK(false, "[cohort] DataLoader could start only ", started, " of ", state_->options.num_workers,
                " worker threads\n  caused by: ", error.what(), "\n  hint: use fewer workers (num_workers)");
  }
}

BatchStream::~BatchStream() { state_->stop(); }

std::shared_ptr<void> BatchStream::read_here() {
  ReadProgress progress(nullptr);
  return state_->read(state_->batches[state_->num_taken++], progress);
}

std::shared_ptr<void> BatchStream::next() {
  if (state_->num_taken == state_->num_batches) return nullptr;
  if (state_->options.num_workers == 0) return read_here();
  Finished result = state_->take_finished();
  if (result.error) std::rethrow_exception(result.error);
  return std::move(result.batch);
}

}  // namespace detail
}  // namespace cohort::data
