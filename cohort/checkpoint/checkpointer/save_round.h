/// One save, and one search, by all ranks of a run.
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
  /// Of `root`; rank 0 takes it.
  FolderLock* lock = nullptr;
};

/// Writes a checkpoint, and removes those that the rules do not keep. Never throws.
/// Returns: an empty text, or what went wrong, of all ranks that had a problem; alike on all ranks that can still talk.
std::string save_together(const comm::RankExchange& ranks, const CheckpointFormat& format, const SaveRequest& request);

/// The newest checkpoint that is whole, or the one of `step`. Checksums are compared by all ranks, a part of the files each.
/// Throws c10::Error where ranks do not see the same, and where the one of `step` is not there or not whole.
std::optional<SavedCheckpoint> find_together(const comm::RankExchange& ranks, const std::string& root,
                                             files::CheckpointCheck check, std::optional<int64_t> step = {});

}  // namespace cohort::checkpoint
