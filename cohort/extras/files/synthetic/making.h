/// Functions that the makers of synthetic datasets share: the folder, the number of samples, and an early end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/synthetic/sample_generator.h"
#include "cohort/extras/files/synthetic/synthetic_dataset.h"

namespace cohort::files {

/// The splits of a dataset, for SampleGenerator.
enum class SetPart { kTrain = 0, kTest = 1 };

class Making {
 public:
  Making(std::string folder, const SyntheticDatasetOptions& options, int64_t num_samples)
      : folder_(std::move(folder)), options_(options), num_samples_(num_samples) {}

  const SyntheticDatasetOptions& options() const { return options_; }
  /// The number of samples; a fifth of it for testing, at least one.
  int64_t num_samples(SetPart part) const;
  /// Returns the random numbers of one sample; absent if the work is to end.
  std::optional<SampleGenerator> sample(SetPart part, int64_t index) const;
  /// Writes a file, and makes the folders in its name.
  base::Result<void> put(const std::string& name, std::string_view bytes) const;
  /// The error of a maker if sample() returned nothing.
  static base::Error stopped();

 private:
  std::string folder_;
  const SyntheticDatasetOptions& options_;
  int64_t num_samples_;
};

/// One maker per kind of dataset.
base::Result<void> make_mnist(const Making& making);
base::Result<void> make_cifar10(const Making& making);
base::Result<void> make_cifar100(const Making& making);
base::Result<void> make_images(const Making& making);
base::Result<void> make_tokens(const Making& making);
base::Result<void> make_text(const Making& making);
base::Result<void> make_csv(const Making& making);

}  // namespace cohort::files
