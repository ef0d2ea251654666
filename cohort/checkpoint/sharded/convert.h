/// Between formats of checkpoints, in one process: what save_sharded wrote, folders and files of safetensors, folders of
/// torch.distributed.checkpoint, files of torch.save. Bytes are copied as they are read, so memory does not matter; values that
/// are no tensors come along. torch/distributed/checkpoint/format_utils.py has two of these.
///
/// All throw c10::Error naming what cannot be read or written and why; nothing is half-written then.
#pragma once

#include <string>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// `path`, of any kind, as one file: of torch.save where its name ends in .pt, .pth or .bin, else of safetensors, with the values
/// as texts in its metadata.
COHORT_API void consolidate(const std::string& path, const std::string& file);

/// `path`, of any kind, as a folder that torch.distributed.checkpoint.load reads on any number of ranks.
COHORT_API void save_as_dcp(const std::string& path, const std::string& folder);

/// A folder of torch.distributed.checkpoint as one file that torch.load reads, with the nested dicts that were saved.
COHORT_API void dcp_to_torch_save(const std::string& dcp_checkpoint_dir, const std::string& torch_save_path);
/// The other way round. Dicts become keys with dots, and come back as dicts.
COHORT_API void torch_save_to_dcp(const std::string& torch_save_path, const std::string& dcp_checkpoint_dir);

}  // namespace cohort::checkpoint
