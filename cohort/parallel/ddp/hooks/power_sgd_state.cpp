#include "cohort/parallel/ddp/hooks/power_sgd_state.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <sstream>

#include "cohort/base/log/log.h"

namespace cohort::ddp {
namespace {

using Tensors = std::map<int64_t, at::Tensor>;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr uint32_t kSeeds = 1'000'000'000;
constexpr uint32_t kSeedBits = (1U << 30) - 1;

void check_start(const PowerSGDOptions& options) {
  TORCH_CHECK_VALUE(!(options.use_error_feedback || options.warm_start) || options.start_power_sgd_iter > 1,
                    "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because "
                    "PowerSGD can only be applied after the first two iterations in DDP.");
}

c10::IValue to_value(const Tensors& tensors) {
  c10::Dict<int64_t, at::Tensor> dict;
  for (const auto& [bucket, tensor] : tensors) dict.insert(bucket, tensor);
  return dict;
}

c10::IValue read(InputArchive& archive, const char* key) {
  c10::IValue value;
  TORCH_CHECK(archive.try_read(key, value), "[cohort] the archive has no state of PowerSGD: \"", key, "\" is missing");
  return value;
}

Tensors read_tensors(InputArchive& archive, const char* key) {
  Tensors tensors;
  for (const auto& entry : read(archive, key).toGenericDict()) {
    tensors[entry.key().toInt()] = entry.value().toTensor();
  }
  return tensors;
}

}  // namespace

PowerSGDState::PowerSGDState(PowerSGDOptions options) : options_(std::move(options)), generator_(options_.random_seed) {
  check_start(options_);
  TORCH_CHECK_VALUE(options_.matrix_approximation_rank > 0,
                    "[cohort] PowerSGDOptions: matrix_approximation_rank must be positive, got ",
                    options_.matrix_approximation_rank);
  options_.compression_stats_logging_frequency = std::max<int64_t>(1, options_.compression_stats_logging_frequency);
  base::log_info(fmt::format(
      "PowerSGD config: matrix_approximation_rank = {}; start_powerSGD_iter = {}; min_compression_rate = {}; "
      "orthogonalization_epsilon = {}; use_error_feedback = {}; warm_start = {}; random_seed = {}; "
      "compression_stats_logging_frequency = {}; batch_tensors_with_same_shape = {}",
      options_.matrix_approximation_rank, options_.start_power_sgd_iter, options_.min_compression_rate,
      options_.orthogonalization_epsilon, options_.use_error_feedback, options_.warm_start, options_.random_seed,
      options_.compression_stats_logging_frequency, options_.batch_tensors_with_same_shape));
}

CompressionStats PowerSGDState::compression_stats() const {
  const double rate = num_after_compression_ > 0
                          ? static_cast<double>(num_before_compression_) / static_cast<double>(num_after_compression_)
                          : 0;
  return {rate, num_before_compression_, num_after_compression_};
}

void PowerSGDState::count(const GradBucket& bucket) {
  if (!bucket.is_last()) return;
  ++iter_;
  if (iter_ == options_.start_power_sgd_iter) {
    base::log_info(fmt::format("Start to apply PowerSGD after {} iterations.", iter_));
  }
}

void PowerSGDState::report(const GradBucket& bucket) {
  if (!bucket.is_last() || iter_ < next_report_) return;
  const auto stats = compression_stats();
  base::log_info(
      fmt::format("Compression stats: iter {}, total before compression {}, total after compression {}, rate {}", iter_,
                  stats.numel_before_compression, stats.numel_after_compression, stats.compress_rate));
  next_report_ = iter_ + options_.compression_stats_logging_frequency;
}

// numpy draws 30 bits until they are below the bound.
uint64_t PowerSGDState::draw_seed() {
  while (true) {
    const auto bits = static_cast<uint32_t>(generator_()) & kSeedBits;
    if (bits < kSeeds) return bits;
  }
}

void PowerSGDState::save(OutputArchive& archive) const {
  std::ostringstream generator;
  generator << generator_;
  archive.write("matrix_approximation_rank", c10::IValue(options_.matrix_approximation_rank));
  archive.write("start_powerSGD_iter", c10::IValue(options_.start_power_sgd_iter));
  archive.write("min_compression_rate", c10::IValue(options_.min_compression_rate));
  archive.write("use_error_feedback", c10::IValue(options_.use_error_feedback));
  archive.write("warm_start", c10::IValue(options_.warm_start));
  archive.write("orthogonalization_epsilon", c10::IValue(options_.orthogonalization_epsilon));
  archive.write("random_seed", c10::IValue(static_cast<int64_t>(options_.random_seed)));
  archive.write("compression_stats_logging_frequency", c10::IValue(options_.compression_stats_logging_frequency));
  archive.write("batch_tensors_with_same_shape", c10::IValue(options_.batch_tensors_with_same_shape));
  archive.write("rng", c10::IValue(generator.str()));
  archive.write("error_dict", to_value(errors_));
  archive.write("p_memory_dict", to_value(ps_));
  archive.write("q_memory_dict", to_value(qs_));
  archive.write("iter", c10::IValue(iter_));
  archive.write("total_numel_before_compression", c10::IValue(num_before_compression_));
  archive.write("total_numel_after_compression", c10::IValue(num_after_compression_));
  archive.write("next_stats_report", c10::IValue(next_report_));
}

void PowerSGDState::load(InputArchive& archive) {
  PowerSGDOptions options;
  options.process_group = options_.process_group;
  options.matrix_approximation_rank = read(archive, "matrix_approximation_rank").toInt();
  options.start_power_sgd_iter = read(archive, "start_powerSGD_iter").toInt();
  options.min_compression_rate = read(archive, "min_compression_rate").toDouble();
  options.use_error_feedback = read(archive, "use_error_feedback").toBool();
  options.warm_start = read(archive, "warm_start").toBool();
  options.orthogonalization_epsilon = read(archive, "orthogonalization_epsilon").toDouble();
  options.random_seed = static_cast<uint32_t>(read(archive, "random_seed").toInt());
  options.compression_stats_logging_frequency = read(archive, "compression_stats_logging_frequency").toInt();
  options.batch_tensors_with_same_shape = read(archive, "batch_tensors_with_same_shape").toBool();
  PowerSGDState loaded(std::move(options));
  std::istringstream(read(archive, "rng").toStringRef()) >> loaded.generator_;
  loaded.errors_ = read_tensors(archive, "error_dict");
  loaded.ps_ = read_tensors(archive, "p_memory_dict");
  loaded.qs_ = read_tensors(archive, "q_memory_dict");
  loaded.iter_ = read(archive, "iter").toInt();
  loaded.num_before_compression_ = read(archive, "total_numel_before_compression").toInt();
  loaded.num_after_compression_ = read(archive, "total_numel_after_compression").toInt();
  loaded.next_report_ = read(archive, "next_stats_report").toInt();
  *this = std::move(loaded);
}

OutputArchive& operator<<(OutputArchive& archive, const PowerSGDState& state) {
  state.save(archive);
  return archive;
}

InputArchive& operator>>(InputArchive& archive, PowerSGDState& state) {
  state.load(archive);
  return archive;
}

}  // namespace cohort::ddp
