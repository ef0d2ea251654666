#include "cohort/data/loader/worker_threads.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <dlfcn.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cohort/comm/backend/host_program.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/data/samplers/sampler.h"

namespace cohort::data {
namespace {

thread_local const WorkerInfo* current_worker = nullptr;

// Workers compute with one thread each, as in PyTorch. at::set_num_threads would change the whole process; OpenMP's setting is
// per thread, and LibTorch does not change it again after the first call.
void compute_with_one_thread() {
  at::get_num_threads();
  const auto set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_num_threads) set_num_threads(1);
}

template <typename Error>
[[noreturn]] void throw_with(const std::string& message) {
  throw Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message);
}

}  // namespace

const WorkerInfo* worker_info() { return current_worker; }

namespace detail {

void rethrow_with_story(const std::function<std::string(const std::string&)>& story) {
  try {
    throw;
  } catch (const c10::IndexError& error) {
    throw_with<c10::IndexError>(story(comm::text_of(error)));
  } catch (const c10::ValueError& error) {
    throw_with<c10::ValueError>(story(comm::text_of(error)));
  } catch (const c10::TypeError& error) {
    throw_with<c10::TypeError>(story(comm::text_of(error)));
  } catch (const c10::NotImplementedError& error) {
    throw_with<c10::NotImplementedError>(story(comm::text_of(error)));
  } catch (const c10::OutOfMemoryError& error) {
    throw_with<c10::OutOfMemoryError>(story(comm::text_of(error)));
  } catch (const c10::Error& error) {
    throw_with<c10::Error>(story(comm::text_of(error)));
  } catch (const std::out_of_range& error) {
    throw_with<c10::IndexError>(story(comm::text_of(error)));
  } catch (const std::invalid_argument& error) {
    throw_with<c10::ValueError>(story(comm::text_of(error)));
  } catch (const std::exception& error) {
    throw_with<c10::Error>(story(comm::text_of(error)));
  } catch (...) {
    throw_with<c10::Error>(story("an exception that is not a std::exception"));
  }
}

struct WorkerThreads::State {
  void run(int worker);
  void stop();

  const int num_workers;
  const std::function<void(int)> worker_init;
  const DatasetAddress dataset;

  std::mutex mutex;
  std::condition_variable changed;
  Job job;
  int64_t number_of_job = 0;
  int64_t base_seed = 0;
  int num_running = 0;
  bool is_leased = false;
  bool should_end = false;
  std::vector<std::thread> threads;
};

void WorkerThreads::State::run(int worker) {
  WorkerInfo info{.id = worker, .num_workers = num_workers, .dataset_address = dataset};
  current_worker = &info;
  compute_with_one_thread();
  std::exception_ptr init_error;
  int64_t last = 0;
  while (true) {
    Job next;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return should_end || number_of_job > last; });
      if (should_end) break;
      if (last == 0) info.seed = base_seed + worker;
      next = job;
    }
    if (last == 0) info.generator = make_generator(info.seed);
    try {
      if (last == 0 && worker_init) worker_init(worker);
    } catch (...) {
      try {
        rethrow_with_story([&](const std::string& reason) {
          return c10::str("[cohort] DataLoader worker thread ", worker, " of ", num_workers,
                          " failed in worker_init_fn\n  caused by: ", reason);
        });
      } catch (...) {
        init_error = std::current_exception();
      }
    }
    ++last;
    next(info, init_error);
    next = {};
    const std::lock_guard lock(mutex);
    if (--num_running == 0) changed.notify_all();
  }
  current_worker = nullptr;
}

void WorkerThreads::State::stop() {
  const comm::HostUnlocked unlocked;
  {
    const std::lock_guard lock(mutex);
    should_end = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

WorkerThreads::WorkerThreads(int num_workers, std::function<void(int worker)> worker_init, DatasetAddress dataset)
    : state_(new State{.num_workers = num_workers, .worker_init = std::move(worker_init), .dataset = dataset}) {
  try {
    for (int worker = 0; worker < num_workers; ++worker) {
      state_->threads.emplace_back([state = state_.get(), worker] { state->run(worker); });
    }
  } catch (const std::system_error& error) {
    const size_t started = state_->threads.size();
    state_->stop();
    TORCH_CHECK(false, "[cohort] DataLoader could start only ", started, " of ", num_workers,
                " worker threads\n  caused by: ", error.what(), "\n  hint: use fewer workers (num_workers)");
  }
}

WorkerThreads::~WorkerThreads() {
  wait();
  state_->stop();
}

bool WorkerThreads::lease() {
  const std::lock_guard lock(state_->mutex);
  return !std::exchange(state_->is_leased, true);
}

void WorkerThreads::start(Job job, int64_t base_seed) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->job = std::move(job);
    state_->base_seed = base_seed;
    state_->num_running = state_->num_workers;
    ++state_->number_of_job;
  }
  state_->changed.notify_all();
}

void WorkerThreads::wait() {
  const comm::HostUnlocked unlocked;
  Job ended;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->num_running == 0; });
  state_->is_leased = false;
  ended = std::move(state_->job);  // its destructor may run foreign code
  lock.unlock();
}

}  // namespace detail
}  // namespace cohort::data
