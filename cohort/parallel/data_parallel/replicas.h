/// Replicas: copies of a module on several devices. For autograd their parameters are the module's: the gradients of all replicas
/// are summed in the module's own parameters, in the order of the devices. Semantics of torch/nn/parallel/replicate.py, for
/// modules with clone().
///
/// The first replica shares its memory with the module, so values that forward writes into its buffers stay, as PyTorch promises;
/// values that the others write into theirs are overwritten by the next refresh. A refresh copies parameters, buffers and the
/// training mode, and makes no new modules. Members that are not registered parameters, buffers or modules are copied when a
/// replica is made, and then belong to the replica.
/// Thread-safety: none; the replicas may be used by one thread each.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/data_parallel/placement.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace cohort::nn::parallel {

class COHORT_API Replicas {
 public:
  /// Makes one clone per device. LibTorch's random numbers are afterwards as before (numbers that other threads drew meanwhile
  /// are repeated).
  /// Throws c10::Error for a module that cannot be cloned, or is not on the first device.
  Replicas(std::shared_ptr<torch::nn::Module> source, const Devices& devices);
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  const std::vector<std::shared_ptr<torch::nn::Module>>& modules() const { return modules_; }

  /// Gives the first `count` replicas the module's present values. Without autograd if `detach` is set or grad mode is off.
  void refresh(size_t count, bool detach);
  /// True as long as somebody else holds a replica's tensors, such as a graph that needs them for backward: another refresh would
  /// change them.
  bool is_in_use() const;
  /// False if the module has other parameters, buffers or submodules than before, or others in shape or dtype.
  bool fits() const;

 private:
  struct Copied;

  void wait_for_earlier_streams(size_t count);
  void adopt_memory();
  void copy_values(size_t count);
  void connect(size_t count);
  void copy_modes(size_t count);

  std::shared_ptr<torch::nn::Module> source_;
  Devices devices_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<std::shared_ptr<torch::nn::Module>> source_parts_;        ///< the module and all modules in it
  std::vector<std::vector<std::shared_ptr<torch::nn::Module>>> parts_;  ///< of each replica, in the same order
  std::vector<Copied> tensors_;
  std::vector<c10::Stream> streams_;  ///< of the last refresh, one per device; empty on CPUs
};

/// Sets of replicas, kept from one forward pass to the next. If a pass's graph still needs its set, another set is made.
class COHORT_API ReplicaCache {
 public:
  ReplicaCache(std::shared_ptr<torch::nn::Module> source, Devices devices);
  ~ReplicaCache();

  /// Returns a refreshed set that nothing uses.
  const Replicas& take(size_t count, bool detach);
  /// Drops all sets: the next ones are clones of the module as it is then.
  void clear();
  size_t num_sets() const { return sets_.size(); }

 private:
  std::shared_ptr<torch::nn::Module> source_;
  Devices devices_;
  std::vector<std::unique_ptr<Replicas>> sets_;
};

namespace detail {

/// Casts the replicas' modules to their type. Throws c10::Error if clone() made another type.
COHORT_API void check_clone(bool has_type, const torch::nn::Module& module);

template <class Net>
std::vector<std::shared_ptr<Net>> as_type(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                                          size_t count) {
  std::vector<std::shared_ptr<Net>> typed;
  for (size_t k = 0; k < count; ++k) {
    typed.push_back(std::dynamic_pointer_cast<Net>(modules[k]));
    check_clone(typed.back() != nullptr, *modules[k]);
  }
  return typed;
}

}  // namespace detail

/// Makes new replicas of `network`, one per device. `detach`: without autograd.
/// Throws c10::Error for a module that cannot be cloned.
template <class Net>
std::vector<std::shared_ptr<Net>> replicate(const std::shared_ptr<Net>& network, const Devices& devices,
                                            bool detach = false) {
  if (devices.empty()) return {};
  Replicas replicas(network, devices);
  replicas.refresh(devices.size(), detach);
  return detail::as_type<Net>(replicas.modules(), devices.size());
}

}  // namespace cohort::nn::parallel
