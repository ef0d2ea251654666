#include "cohort/files/checkpoints/checkpoint_name.h"

#include <fmt/format.h>

#include <random>

#include "cohort/base/text/text.h"

namespace cohort::files {
namespace {

constexpr std::string_view kStepPrefix = "step-";

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::optional<int64_t> step_of_checkpoint(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = base::parse_int(name.substr(kStepPrefix.size()));
  if (!step || *step < 0 || checkpoint_name(*step) != name) return std::nullopt;
  return *step;
}

std::string temporary_checkpoint_name(std::string_view prefix, int64_t step) {
  std::random_device random;
  return fmt::format("{}{}-{:08x}{:08x}", prefix, checkpoint_name(step), random(), random());
}

}  // namespace cohort::files
