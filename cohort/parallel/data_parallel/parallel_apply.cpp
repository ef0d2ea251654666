#include "cohort/parallel/data_parallel/parallel_apply.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace cohort::nn::parallel {
namespace {

// Returns the error of a replica, with the replica and its device.
std::exception_ptr of_replica(size_t index, const c10::Device& device) {
  const auto place = fmt::format("in replica {} on device {}", index, device.str());
  try {
    throw;
  } catch (c10::Error& error) {
    error.add_context(place);
    return std::current_exception();
  } catch (const std::exception& error) {
    try {
      std::throw_with_nested(std::runtime_error(fmt::format("{} ({})", error.what(), place)));
    } catch (...) {
      return std::current_exception();
    }
  } catch (...) {
    return std::current_exception();
  }
}

std::vector<std::optional<c10::Stream>> current_streams(const Devices& devices) {
  std::vector<std::optional<c10::Stream>> streams;
  for (const auto& device : devices) {
    streams.push_back(device.is_cpu() ? std::nullopt
                                      : std::optional(c10::impl::VirtualGuardImpl(device.type()).getStream(device)));
  }
  return streams;
}

// Each thread gets its own number of LibTorch threads when it first asks for it.
void use_num_threads(int num_threads) {
  if (at::get_num_threads() != num_threads) at::init_num_threads();
}

}  // namespace

class ReplicaThreads::Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() {
    start({});
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // An empty job ends the thread.
  void start(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
    has_job_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !has_job_; });
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return has_job_; });
      auto job = std::move(job_);
      lock.unlock();
      if (!job) return;
      job();
      job = {};
      lock.lock();
      has_job_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool has_job_ = false;
  std::thread thread_;
};

ReplicaThreads::ReplicaThreads() = default;
ReplicaThreads::~ReplicaThreads() = default;

void ReplicaThreads::run(const Devices& devices, const std::function<void(size_t)>& task) {
  if (is_busy_.exchange(true)) return ReplicaThreads().run(devices, task);
  const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> busy(&is_busy_,
                                                                              [](auto* flag) { *flag = false; });
  run_on_workers(devices, task);
}

void ReplicaThreads::run_on_workers(const Devices& devices, const std::function<void(size_t)>& task) {
  const auto streams = current_streams(devices);
  const at::ThreadLocalState caller;
  const int num_threads = at::get_num_threads();
  std::vector<std::exception_ptr> errors(devices.size());
  const auto run_one = [&](size_t i) {
    try {
      const c10::OptionalStreamGuard stream(streams[i]);
      task(i);
    } catch (...) {
      errors[i] = of_replica(i, devices[i]);
    }
  };
  while (workers_.size() + 1 < devices.size()) workers_.push_back(std::make_unique<Worker>());
  for (size_t i = 1; i < devices.size(); ++i) {
    workers_[i - 1]->start([&, i] {
      use_num_threads(num_threads);
      const at::ThreadLocalStateGuard as_caller(caller);
      run_one(i);
    });
  }
  run_one(0);
  for (size_t i = 1; i < devices.size(); ++i) workers_[i - 1]->wait();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void detail::check_number(size_t num_modules, size_t num_others, const char* of_what) {
  TORCH_CHECK(num_modules == num_others, "The number of modules ", num_modules, " is not equal to the number of ",
              of_what, " ", num_others);
}

}  // namespace cohort::nn::parallel
