/// ModuleSharding: the result of one call of fully_shard on the parameters of its modules: a Sharding for each mesh of the
/// parameters, shared by all of the modules. ModuleForward: a forward pass of one of the modules.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/fsdp/sharding.h"

namespace cohort::fsdp {

class COHORT_API ModuleSharding {
 public:
  /// Shards the parameters that calls on inner modules have not taken. `find_nested`: as Sharding's. Collective. Throws as
  /// Sharding, and c10::ValueError for a container without forward, for an empty list, and for a module inside another one of the
  /// list.
  explicit ModuleSharding(const std::vector<torch::nn::Module*>& modules, const Options& options,
                          const std::function<std::vector<Sharding*>()>& find_nested = {});

  /// The mesh of the first parameter is first; never empty.
  const std::vector<std::unique_ptr<Sharding>>& shardings() const { return shardings_; }
  bool follows_passes() const;

 private:
  std::vector<std::unique_ptr<Sharding>> shardings_;
};

/// One of the modules that share a ModuleSharding.
struct ModuleShare {
  std::shared_ptr<ModuleSharding> sharding;
  size_t module = 0;
};

/// As Sharding::Forward.
class COHORT_API ModuleForward {
 public:
  explicit ModuleForward(const ModuleShare& share);
  ~ModuleForward();
  ModuleForward(const ModuleForward&) = delete;
  ModuleForward& operator=(const ModuleForward&) = delete;

  std::vector<at::Tensor> inputs(std::vector<at::Tensor> inputs);
  void outputs(const std::vector<at::Tensor>& outputs);

 private:
  std::vector<std::unique_ptr<Sharding::Forward>> passes_;
};

}  // namespace cohort::fsdp
