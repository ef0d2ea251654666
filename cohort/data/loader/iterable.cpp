#include "cohort/data/loader/iterable.h"

#include <c10/util/Exception.h>

#include "cohort/base/numbers/count.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/data/loader/worker_info.h"

namespace cohort::data::detail {

ShardOfSamples shard_of_rank(const ShardOptions& options) {
  const bool has_group = is_initialized();
  const int64_t count = options.num_replicas ? *options.num_replicas : has_group ? get_world_size() : 1;
  const int64_t rank = options.rank ? *options.rank : has_group ? get_rank() : 0;
  TORCH_CHECK_VALUE(rank >= 0 && rank < count, "Invalid rank ", rank, ", rank should be in the interval [0, ",
                    count - 1, "]");
  return {rank, count};
}

ShardOfSamples shard_of_worker(ShardOfSamples of_rank) {
  const WorkerInfo* worker = worker_info();
  if (!worker) return of_rank;
  return {base::add_capped(base::multiply_capped(worker->id, of_rank.count), of_rank.index),
          base::multiply_capped(worker->num_workers, of_rank.count)};
}

}  // namespace cohort::data::detail
