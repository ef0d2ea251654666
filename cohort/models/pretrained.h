/// Weights that somebody else has trained:
///
///     auto model = cohort::models::pretrained(
///         "resnet50d.safetensors", [] { return cohort::models::resnet50d({.num_classes = 10}); });
///
/// What is read: files of torch.save (.pt, .pth, .pth.tar, .bin), safetensors files, and folders of files with an index or with
/// one such file. In a training checkpoint the weights are found as timm finds them: "state_dict_ema", "model_ema", "state_dict"
/// or "model". What wrappers put before names, "module." and "_orig_mod.", is left out. Nothing of a file is run.
///
/// What does not fit is made to fit where timm does so, and the report says so:
///   - a classifier for another number of classes is left out, and the model's begins anew;
///   - a first convolution for another number of channels is summed up (1 channel) or repeated;
///   - a position embedding for another image size is interpolated;
///   - GPT-2's transposed maps are turned (gpt.h).
///
/// Thread-safety: none for one model.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/recovery/skip_init.h"
#include "cohort/export.h"

namespace cohort::models {

struct PretrainedOptions {
  /// Averaged weights, where a file has them beside others.
  bool use_ema = true;
  /// Throw unless the file has everything that the model has, and nothing else.
  bool strict = true;
  /// Names in models that are not from here (pretrainable.h), such as "fc" and "conv1".
  std::optional<std::string> classifier = {};
  std::optional<std::string> first_convolution = {};
};

struct PretrainedReport {
  /// `"run.pth.tar", its "state_dict_ema"`
  std::string source;
  int64_t num_tensors = 0;
  /// What was made to fit, a sentence each.
  std::vector<std::string> notes = {};
  /// Of the model, and not in the file; in the file, and not of the model. Empty if `strict`.
  std::vector<std::string> missing_keys = {};
  std::vector<std::string> unexpected_keys = {};

  /// All of it, in lines.
  COHORT_API std::string text() const;
};

/// Copies a file's weights into `model`, which no wrapper has taken yet. Logs the report (COHORT_LOG_LEVEL=info).
/// Throws c10::Error, which names the file, for one that cannot be read or holds no weights, and for names and shapes that do
/// not fit, with the names that may have been meant. The model is then unchanged.
COHORT_API PretrainedReport load_pretrained(torch::nn::Module& model, const std::string& path,
                                            const PretrainedOptions& options = {});

/// The model that `make` makes, without drawing random numbers for weights that the file has. Returns what `make` returns: a
/// module holder or a shared_ptr.
template <typename Make>
auto pretrained(const std::string& path, const Make& make, const PretrainedOptions& options = {}) {
  std::optional<checkpoint::SkipInit> skip;
  if (options.strict) skip.emplace();
  auto model = make();
  skip.reset();
  load_pretrained(*model, path, options);
  return model;
}

}  // namespace cohort::models
