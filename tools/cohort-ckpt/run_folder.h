/// The folder in which a Checkpointer keeps a run's checkpoints.
#pragma once

#include <algorithm>
#include <string>

#include "cohort/base/file/open_file.h"
#include "cohort/files/checkpoints/checkpoint_name.h"

namespace cohort::ckpt_cli {

/// Whether it has a checkpoint, or a save that was interrupted.
inline bool is_run_folder(const std::string& path) {
  const auto names = base::names_in_folder(path);
  return names && std::any_of(names->begin(), names->end(), [](const std::string& name) {
           return files::step_of_checkpoint(name) || name.starts_with(files::kSavingPrefix);
         });
}

}  // namespace cohort::ckpt_cli
