/// A save, and a search, that all ranks of a run do together.
#pragma once

#include <optional>
#include <string>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/checkpoint/checkpointer/folder_lock.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/files/checkpoints/checkpoint_list.h"
#include "cohort/files/checkpoints/retention.h"

namespace cohort::checkpoint {

struct SaveRequest {
  std::string root;
  int64_t step = 0;
  const ShardedStateDict* state = nullptr;
  SaveInfo info;
  files::RetentionRules rules;
  /// The lock of `root`; rank 0 takes it.
  FolderLock* lock = nullptr;
};

/// Writes a checkpoint, and removes checkpoints that the rules do not keep. Never throws.
/// Returns: an empty text, or the errors of all ranks that have failed; the same on all ranks that can still communicate.
std::string save_together(const comm::RankExchange& ranks, const CheckpointFormat& format, const SaveRequest& request);

/// Returns the newest complete checkpoint, or the one of `step`. Each rank compares the checksums of some of the files.
/// Throws c10::Error if ranks do not see the same folder, or if the checkpoint of `step` does not exist or is not complete.
std::optional<SavedCheckpoint> find_together(const comm::RankExchange& ranks, const std::string& root,
                                             files::CheckpointCheck check, std::optional<int64_t> step = {});

}  // namespace cohort::checkpoint
