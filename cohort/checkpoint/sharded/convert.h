/// Converters between checkpoint formats, in one process: checkpoints of save_sharded, folders and files of safetensors, folders
/// of torch.distributed.checkpoint, files of torch.save. They copy bytes as they read them, so they need little memory; values
/// that are not tensors are kept. torch/distributed/checkpoint/format_utils.py has two of these.
///
/// All throw c10::Error naming what cannot be read or written, and why; they leave no incomplete output.
#pragma once

#include <string>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// Writes the checkpoint `from`, of any kind, as one file: of torch.save if its name ends in .pt, .pth or .bin, otherwise of
/// safetensors, with plain values as texts in its metadata.
COHORT_API void consolidate(const std::string& from, const std::string& file);

/// Writes the checkpoint `from`, of any kind, as a folder that torch.distributed.checkpoint.load reads on any number of ranks.
COHORT_API void convert_to_dcp(const std::string& from, const std::string& folder);
[[deprecated("use convert_to_dcp")]] inline void save_as_dcp(const std::string& path, const std::string& folder) {
  convert_to_dcp(path, folder);
}

/// Writes a folder of torch.distributed.checkpoint as one file that torch.load reads, with the nested dicts that were saved.
COHORT_API void dcp_to_torch_save(const std::string& dcp_checkpoint_dir, const std::string& torch_save_path);
/// Does the reverse. Dicts become keys with dots, and become dicts again when they are loaded.
COHORT_API void torch_save_to_dcp(const std::string& torch_save_path, const std::string& dcp_checkpoint_dir);

}  // namespace cohort::checkpoint
