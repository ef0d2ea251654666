/// Names of the folders of a run's checkpoints. Pure.
///
///     step-00001200               a checkpoint
///     .saving-step-00001200-3f9a  one that is being written, or was when its run was killed
///     .saving-step-00001200-3f9a.lock   locked while its writer lives
///     .removing-step-00000100-77c1      one that is being removed
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::files {

inline constexpr std::string_view kSavingPrefix = ".saving-";
inline constexpr std::string_view kRemovingPrefix = ".removing-";
inline constexpr std::string_view kLockEnding = ".lock";

/// Returns the name, with eight digits or more if the step has more. Requires step >= 0.
std::string checkpoint_name(int64_t step);
/// Returns the step of a name that checkpoint_name() gives; nothing for any other name.
std::optional<int64_t> step_of_checkpoint(std::string_view name);
/// Returns `<prefix>step-00001200-<hexadecimal digits>`, another name at each call.
std::string temporary_checkpoint_name(std::string_view prefix, int64_t step);

}  // namespace cohort::files
