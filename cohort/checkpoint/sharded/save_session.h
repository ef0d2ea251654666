/// SaveSession: one save, from the ranks' states to the committed checkpoint: plan, write, finish, in this order. save_sharded
/// does all three at once; async_save does the second and third in a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/files/tensors/plan/save_plan.h"
#include "cohort/files/tensors/plan/shard_files.h"

namespace cohort::checkpoint::detail {

/// Returns the ranks of `group`, or of the default group if it is null. Without a group, or with `no_dist`, only this process.
comm::RankExchange ranks_of(const Group& group, bool no_dist);

class SaveSession {
 public:
  /// `function`: the one that the user has called.
  SaveSession(const char* function, std::string folder, SaveShardedOptions options);

  /// Agrees with the other ranks on who writes what. Collective. `problem`: why this rank cannot save at all, or "".
  void plan(const comm::RankExchange& ranks, const ShardedStateDict& state, const std::string& problem = {});
  /// Returns the tensors that this rank writes, in this order.
  const std::vector<files::PlannedWrite>& writes() const { return own_plan_.writes.front(); }
  const files::SaveItem& item_of(const files::PlannedWrite& write) const { return items_[write.item]; }

  /// `data_of(i)`: returns the elements of writes()[i], row by row on the CPU; they stay valid until the next call.
  /// Returns the result that finish() sends to the first rank.
  comm::StepResult write(const std::function<const char*(size_t)>& data_of);
  /// Commits the checkpoint if all ranks have written their files; otherwise throws CheckpointException. Collective.
  void finish(const comm::RankExchange& ranks, const comm::StepResult& written);

 private:
  std::string what() const { return function_ + ": cannot save \"" + folder_ + "\""; }
  std::vector<std::string> plan_for_all(const std::vector<std::string>& described);

  std::string function_;
  std::string folder_;
  SaveShardedOptions options_;
  std::vector<files::SaveItem> items_;
  files::SavePlan own_plan_;

  // Only on the first rank.
  std::vector<std::vector<files::SaveItem>> items_by_rank_;
  files::SavePlan plan_;
  files::ShardFiles files_;
};

}  // namespace cohort::checkpoint::detail
