/// Checkpoints that all ranks write and read together, each its own shards (names as in torch/distributed/checkpoint):
///
///     cohort::checkpoint::save_sharded(state, "runs/7/step-100");
///     cohort::checkpoint::load_sharded(state, "runs/7/step-100");  // on any number of ranks, sharded in any way
///
/// On disk: a folder of ordinary safetensors files with full tensors and `model.safetensors.index.json`, which Hugging Face's
/// libraries can read (docs/checkpoint_format.md). The index has checksums of all files and the values that are not tensors. It
/// is written last: a folder without it is unfinished and is refused. A save over an existing checkpoint leaves the old one
/// complete until the new one is.
///
/// Collective: every rank of the group calls, with its own state; a key need not be on every rank. If one rank fails, all throw
/// one CheckpointException. Thread-safety: as collectives.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint/state/state_value.h"
#include "cohort/comm/agreement/rank_error.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// Says which ranks failed and why, by rank in the group: failures(). Thrown on all ranks.
using CheckpointException = comm::RankError;

struct SaveShardedOptions {
  /// Default: the default group; without one this process is alone.
  Group process_group = {};
  /// Act alone although there is a group.
  bool no_dist = false;
  /// If false, an existing checkpoint in the folder is an error.
  bool overwrite = true;
  /// Whether to return only when everything is on the disk, and not just in the kernel's memory.
  bool sync_files = true;
  /// Bytes of tensors in one file, like Hugging Face's max_shard_size. A larger tensor gets a file of its own.
  uint64_t max_shard_size = 5'000'000'000;
  /// At least so many files. If absent, one per rank, if each gets a MiB.
  std::optional<int> num_files = {};
  /// Texts for whoever reads the index. Those of rank 0.
  std::map<std::string, std::string> metadata = {};
};

/// A tensor that all ranks have is written once, by the rank with the least to write; so is a shard that several ranks have.
/// Plain values are written by the lowest rank. Makes the folder if it does not exist; only the owner may read the files.
/// Throws CheckpointException: for keys whose tensors differ between ranks, shards that overlap or leave elements out, tensors
/// that cannot be stored (sparse, meta, partial sums, dtypes without a name in the format), and if the disk reports an error.
COHORT_API void save_sharded(const ShardedStateDict& state, const std::string& folder,
                             const SaveShardedOptions& options = {});

struct LoadShardedOptions {
  Group process_group = {};
  bool no_dist = false;
  /// Whether keys that the checkpoint lacks keep their values, and are listed in LoadReport::missing_keys.
  bool allow_partial_load = false;
  /// Whether keys of the checkpoint that are in no rank's state are an error. If false, they are ignored.
  bool strict = false;
  /// Whether to compare a tensor with its checksum if this rank reads all of it.
  bool verify = true;
};

/// The report of this rank.
struct LoadReport {
  /// The bytes of tensors that this rank's shards needed.
  uint64_t bytes_read = 0;
  std::vector<std::string> missing_keys;
};

/// Fills the state: full tensors and shards in place (rounded if they have another dtype); replaces plain values. For a parameter
/// that is tied to another stage's, the checkpoint may have another key (StateValue::tied). Changes nothing before all ranks have
/// found all their keys with their shapes. `path`: a checkpoint of save_sharded, a folder or file of Hugging Face's, a folder of
/// torch.distributed.checkpoint, or a safetensors file.
/// Throws CheckpointException: for a missing key or another shape, with PyTorch's texts; for an unfinished or damaged checkpoint.
COHORT_API LoadReport load_sharded(ShardedStateDict& state, const std::string& path,
                                   const LoadShardedOptions& options = {});

using ShardedSaveOptions [[deprecated("use SaveShardedOptions")]] = SaveShardedOptions;
using ShardedLoadOptions [[deprecated("use LoadShardedOptions")]] = LoadShardedOptions;

}  // namespace cohort::checkpoint
