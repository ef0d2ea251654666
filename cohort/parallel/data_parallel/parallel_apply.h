/// parallel_apply: runs each module with its own inputs, on its own device, in a thread of its own. Semantics of
/// torch/nn/parallel/parallel_apply.py.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/data_parallel/placement.h"

namespace cohort::nn::parallel {

/// Threads that are kept from one call to the next. Thread-safety: full; a call during another one, or from within it, uses
/// threads of its own.
class COHORT_API ReplicaThreads {
 public:
  ReplicaThreads();
  ~ReplicaThreads();

  /// Calls task(i) once for each device and returns when all have ended: task(0) in the calling thread, the others in threads of
  /// their own, with the caller's grad mode, autocast and number of threads, on devices[i] and the caller's current stream there.
  /// Throws the exception of the lowest i, with the replica and its device: a c10::Error keeps its type, another exception is
  /// nested in a std::runtime_error.
  void run(const Devices& devices, const std::function<void(size_t)>& task);

 private:
  class Worker;
  void run_on_workers(const Devices& devices, const std::function<void(size_t)>& task);

  std::atomic<bool> is_busy_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
};

namespace detail {

COHORT_API void check_number(size_t num_modules, size_t num_others, const char* of_what);

template <class Net, class... Inputs>
using OutputOf = std::decay_t<decltype(std::declval<Net&>().forward(std::declval<Inputs>()...))>;

template <class Net, class Tuple>
struct OutputFor;
template <class Net, class... Inputs>
struct OutputFor<Net, std::tuple<Inputs...>> {
  using type = OutputOf<Net, Inputs...>;
};

template <class Net, class Tuple>
auto forward(Net& module, Tuple inputs) {
  return std::apply(
      [&](auto&&... arguments) { return module.forward(std::forward<decltype(arguments)>(arguments)...); },
      std::move(inputs));
}

}  // namespace detail

/// Runs modules[i]->forward(inputs[i]...) for each i; `inputs` are tuples of its arguments. A forward without a result returns
/// std::monostate. Throws c10::Error unless there are as many modules as inputs and devices; else as ReplicaThreads::run.
template <class Net, class... Inputs>
auto parallel_apply(const std::vector<std::shared_ptr<Net>>& modules, std::vector<std::tuple<Inputs...>> inputs,
                    const Devices& devices, ReplicaThreads& threads) {
  using Output = detail::OutputOf<Net, Inputs...>;
  using Kept = std::conditional_t<std::is_void_v<Output>, std::monostate, Output>;
  detail::check_number(modules.size(), inputs.size(), "inputs");
  detail::check_number(modules.size(), devices.size(), "devices");
  std::vector<std::optional<Kept>> outputs(modules.size());
  threads.run(devices, [&](size_t i) {
    if constexpr (std::is_void_v<Output>) {
      detail::forward(*modules[i], std::move(inputs[i]));
      outputs[i].emplace();
    } else {
      outputs[i] = detail::forward(*modules[i], std::move(inputs[i]));
    }
  });
  std::vector<Kept> results;
  results.reserve(outputs.size());
  for (auto& output : outputs) results.push_back(std::move(*output));
  return results;
}

template <class Net, class... Inputs>
auto parallel_apply(const std::vector<std::shared_ptr<Net>>& modules, std::vector<std::tuple<Inputs...>> inputs,
                    const Devices& devices) {
  ReplicaThreads threads;
  return parallel_apply(modules, std::move(inputs), devices, threads);
}

}  // namespace cohort::nn::parallel
