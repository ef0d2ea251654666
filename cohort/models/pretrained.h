/// Weights that were trained elsewhere:
///
///     auto model = cohort::models::load_pretrained_model(
///         [] { return cohort::models::resnet50d({.num_classes = 10}); }, "resnet50d.safetensors");
///
/// Reads files of torch.save (.pt, .pth, .pth.tar, .bin), safetensors files, and folders of files with an index or with one such
/// file. In a training checkpoint the weights are the first dict that timm would take: "state_dict_ema", "model_ema",
/// "state_dict" or "model". Removes the prefixes of wrappers, "module." and "_orig_mod.", from names. Runs no code of a file.
///
/// Adapts weights that do not fit in the cases in which timm does so, and reports it:
///   - a classifier for another number of classes is left out, and the model's is newly initialized;
///   - a first convolution for another number of channels is summed up (1 channel) or repeated;
///   - a position embedding for another image size is interpolated;
///   - GPT-2's transposed maps are transposed again (gpt.h).
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

struct LoadPretrainedOptions {
  /// Takes averaged weights if a file has both.
  bool use_ema = true;
  /// Throws if names in the file and in the model differ.
  bool strict = true;
  /// The names of these layers in models that are not Pretrainable (pretrainable.h), such as "fc" and "conv1".
  std::optional<std::string> classifier = {};
  std::optional<std::string> first_convolution = {};
};

struct PretrainedReport {
  /// The file and the key in it: `"run.pth.tar", its "state_dict_ema"`.
  std::string source;
  int64_t num_tensors = 0;
  /// The adaptations, one sentence each.
  std::vector<std::string> notes = {};
  /// Names that only the model has, and names that only the file has. Empty if `strict`.
  std::vector<std::string> missing_keys = {};
  std::vector<std::string> unexpected_keys = {};

  /// The whole report, as lines.
  COHORT_API std::string text() const;
};

/// Copies a file's weights into `model`, which must not be wrapped yet. Logs the report (COHORT_LOG_LEVEL=info). Throws
/// c10::Error naming the file if it cannot be read or has no weights, and for names and shapes that do not fit, with suggestions
/// of similar names. The model is then unchanged.
COHORT_API PretrainedReport load_pretrained(torch::nn::Module& model, const std::string& path,
                                            const LoadPretrainedOptions& options = {});

/// Returns the model that `make` makes, with the file's weights: a module holder or a shared_ptr. Draws no random numbers for
/// weights that the file has.
template <typename Make>
auto load_pretrained_model(const Make& make, const std::string& path, const LoadPretrainedOptions& options = {}) {
  std::optional<checkpoint::SkipInit> skip;
  if (options.strict) skip.emplace();
  auto model = make();
  skip.reset();
  load_pretrained(*model, path, options);
  return model;
}

using PretrainedOptions [[deprecated("use LoadPretrainedOptions")]] = LoadPretrainedOptions;
template <typename Make>
[[deprecated("use load_pretrained_model(make, path, options)")]] auto pretrained(
    const std::string& path, const Make& make, const LoadPretrainedOptions& options = {}) {
  return load_pretrained_model(make, path, options);
}

}  // namespace cohort::models
