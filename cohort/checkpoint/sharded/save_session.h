/// One save, from the ranks' states to the committed checkpoint: plan, write, finish, in this order. save_sharded does them in a
/// row; async_save the second and third in a thread.
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

/// Those of the group of the options: the one given, or the default one. Alone where there is none, and with `no_dist`.
comm::RankExchange ranks_of(const Group& group, bool no_dist);

class SaveSession {
 public:
  /// `function`: the one that the user has called.
  SaveSession(const char* function, std::string folder, ShardedSaveOptions options);

  /// Collective. Agrees with the other ranks on who writes what. `problem`: why this rank cannot save at all, or "".
  void plan(const comm::RankExchange& ranks, const ShardedStateDict& state, const std::string& problem = {});
  /// What this rank writes, in this order.
  const std::vector<files::PlannedWrite>& writes() const { return own_plan_.writes.front(); }
  const files::SaveItem& item_of(const files::PlannedWrite& write) const { return items_[write.item]; }

  /// `data_of(i)`: the elements of the i-th of writes(), row by row on the CPU; kept until the next call.
  /// Returns what finish() tells the first rank.
  comm::StepResult write(const std::function<const char*(size_t)>& data_of);
  /// Collective. Commits the checkpoint if all ranks have written their parts. Throws CheckpointException if not.
  void finish(const comm::RankExchange& ranks, const comm::StepResult& written);

 private:
  std::string what() const { return function_ + ": cannot save \"" + folder_ + "\""; }
  std::vector<std::string> plan_for_all(const std::vector<std::string>& described);

  std::string function_;
  std::string folder_;
  ShardedSaveOptions options_;
  std::vector<files::SaveItem> items_;
  files::SavePlan own_plan_;

  // The first rank's.
  std::vector<std::vector<files::SaveItem>> items_by_rank_;
  files::SavePlan plan_;
  files::ShardFiles files_;
};

}  // namespace cohort::checkpoint::detail
