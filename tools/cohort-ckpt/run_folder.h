/// The folder in which a Checkpointer keeps a run's checkpoints.
#pragma once

#include <filesystem>
#include <string>

#include "cohort/files/checkpoints/checkpoint_name.h"

namespace cohort::ckpt_cli {

/// True if it holds a checkpoint, or a save that was cut short.
inline bool is_run_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (files::step_of_checkpoint(name) || name.starts_with(files::kSavingPrefix)) return true;
  }
  return false;
}

}  // namespace cohort::ckpt_cli
