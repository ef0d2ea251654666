// A training case that ddp_reference.py has written, and the record of how a rank trained it.
#pragma once

#include <c10/util/Logging.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/parallel/ddp/settings/options.h"

namespace cohort::proof {

/// One safetensors file: settings in its metadata, "initial.<name>" weights, "x", "y" and "flags" of shape
/// [steps, micro-batches, ranks, ...].
class TrainingCase {
 public:
  explicit TrainingCase(const std::string& path);

  const std::string& setting(const std::string& key) const;
  double number(const std::string& key) const { return std::stod(setting(key)); }
  bool flag(const std::string& key) const { return setting(key) == "1"; }
  std::vector<std::string> words(const std::string& key) const;
  /// Of this rank.
  int64_t num_steps() const;
  int64_t num_micro_batches() const { return tensors_["x"].size(1); }
  /// This rank's part of "x", "y" or "flags".
  at::Tensor batch(const std::string& key, int64_t step, int64_t micro_batch) const;
  std::optional<at::ScalarType> dtype(const std::string& key) const;
  /// `module`: that of the parameters named in setting "delayed".
  ddp::Options ddp_options(ddp::Engine engine, torch::nn::Module& module) const;
  std::unique_ptr<torch::optim::Optimizer> optimizer(std::vector<at::Tensor> parameters) const;
  /// The file's weights on rank 0; others on other ranks, so that only DDP's broadcast can make them equal.
  void initialize(torch::nn::Module& module) const;

 private:
  std::string path_;
  checkpoint::FileMetadata settings_;
  checkpoint::StateDict tensors_;
};

/// Parameters by name, each once: a shared one under its first name.
checkpoint::StateDict unique_parameters(const torch::nn::Module& module);

/// What ddp_test.py compares bit by bit.
class Record {
 public:
  explicit Record(const torch::nn::Module& module) : module_(module) {}

  void add(const std::string& name, const at::Tensor& value) { values_[name].push_back(value.detach().clone()); }
  void add_state();
  void add_gradients();
  /// `buckets`: indices of the parameters that require gradients, without the ignored ones.
  void add_buckets(const std::vector<std::vector<size_t>>& buckets, const std::vector<std::string>& ignored);
  /// What DDP says of itself: a line "name=value" each.
  void set_logging_data(const c10::DDPLoggingData& data);
  void save(const std::string& path) const;

 private:
  const torch::nn::Module& module_;
  std::map<std::string, std::vector<at::Tensor>> values_;
  std::string buckets_;
  std::string logging_;
};

}  // namespace cohort::proof
