/// What the makers of stand-ins share: where their files go, how many samples there are, and an early end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/stand_ins/sample_generator.h"
#include "cohort/extras/files/stand_ins/stand_in.h"

namespace cohort::files {

/// The parts of a set, for SampleGenerator.
enum class SetPart { kTrain = 0, kTest = 1 };

class Making {
 public:
  Making(std::string folder, const StandInOptions& options, int64_t num_samples)
      : folder_(std::move(folder)), options_(options), num_samples_(num_samples) {}

  const StandInOptions& options() const { return options_; }
  /// A fifth as many for testing, at least one.
  int64_t num_samples(SetPart part) const;
  /// One sample's random numbers; nothing if the work is to end.
  std::optional<SampleGenerator> sample(SetPart part, int64_t index) const;
  /// Writes one of the files, and the folders in its name.
  base::Result<void> put(const std::string& name, std::string_view bytes) const;
  /// What a maker returns when sample() gave nothing.
  static base::Error stopped();

 private:
  std::string folder_;
  const StandInOptions& options_;
  int64_t num_samples_;
};

/// Makers, one for each kind.
base::Result<void> make_mnist(const Making& making);
base::Result<void> make_cifar10(const Making& making);
base::Result<void> make_cifar100(const Making& making);
base::Result<void> make_images(const Making& making);
base::Result<void> make_tokens(const Making& making);
base::Result<void> make_text(const Making& making);
base::Result<void> make_csv(const Making& making);

}  // namespace cohort::files
