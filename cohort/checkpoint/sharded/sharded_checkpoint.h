/// Checkpoints that all ranks write and read together, each its part (names as in torch/distributed/checkpoint):
///
///     cohort::checkpoint::save_sharded(state, "runs/7/step-100");
///     cohort::checkpoint::load_sharded(state, "runs/7/step-100");  // on any number of ranks, cut in any way
///
/// On disk: a folder of ordinary safetensors files with whole tensors and `model.safetensors.index.json`, which Hugging Face's
/// libraries read as it is (docs/checkpoint_format.md). The index has checksums of all that was written and the values that are
/// no tensors, and appears last: a folder without it is unfinished and is refused. Saving where a checkpoint is already leaves
/// that one whole until the new one is.
///
/// Collective: every rank of the group calls, with its own state; not every rank need have every key. What fails on one rank is
/// thrown on all of them, as one CheckpointException. Thread-safety: as collectives.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cohort/checkpoint/state/state_value.h"
#include "cohort/comm/agreement/rank_error.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// Says which ranks failed, and why each, by rank in the group: failures(). On all ranks.
using CheckpointException = comm::RankError;

struct ShardedSaveOptions {
  /// Default: the default group; without one this process is alone.
  Group group = {};
  /// Act alone although there is a group.
  bool no_dist = false;
  /// False: an error where the folder holds a checkpoint.
  bool overwrite = true;
  /// Return when everything is on the disk, not only in the kernel's memory.
  bool sync_files = true;
  /// Bytes of tensors in one file, as Hugging Face's max_shard_size. A larger tensor has a file of its own.
  uint64_t max_shard_size = 5'000'000'000;
  /// At least so many files; 0: one per rank, if each gets a MiB.
  int num_files = 0;
  /// Texts for whoever reads the index. Those of rank 0.
  std::map<std::string, std::string> metadata = {};
};

/// Tensors that all ranks have alike are written once, by the rank with the least to write; so are parts that several ranks have,
/// and values, by the lowest rank. The folder is made if need be; its files are for their owner only.
/// Throws CheckpointException: for keys that are not the same tensor on all ranks, parts that overlap or leave elements out,
/// tensors that cannot be stored (sparse, meta, partial sums, dtypes without a name in the format), and when the disk refuses.
COHORT_API void save_sharded(const ShardedStateDict& state, const std::string& folder,
                             const ShardedSaveOptions& options = {});

struct ShardedLoadOptions {
  Group group = {};
  bool no_dist = false;
  /// Keys that the checkpoint does not have keep their values, and are in LoadReport::missing_keys.
  bool allow_partial_load = false;
  /// Keys of the checkpoint that no rank's state has are an error; else they are left out.
  bool strict = false;
  /// Compares what this rank reads as a whole with its checksum.
  bool verify = true;
};

/// Of this rank.
struct LoadReport {
  /// Of tensors: what this rank's parts need.
  uint64_t bytes_read = 0;
  std::vector<std::string> missing_keys;
};

/// Fills the state: tensors and parts in place (with another dtype, rounded to it), other values are replaced. Of what is tied to
/// another stage's, another key may be there (StateValue::tied). Nothing is changed before all ranks have found all their keys
/// with their shapes. `path`: what save_sharded wrote, a folder or file of Hugging Face's, a folder of
/// torch.distributed.checkpoint, a safetensors file.
/// Throws CheckpointException: for a missing key or another shape, in PyTorch's words; for what is unfinished or damaged.
COHORT_API LoadReport load_sharded(ShardedStateDict& state, const std::string& path,
                                   const ShardedLoadOptions& options = {});

}  // namespace cohort::checkpoint
