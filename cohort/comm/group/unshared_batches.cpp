#include "cohort/comm/group/unshared_batches.h"

#include <atomic>
#include <string>

#include "cohort/comm/group/job_warning.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::comm {
namespace {

std::atomic<bool> was_of_all_samples = false;

}  // namespace

void note_batch(bool is_of_all_samples) { was_of_all_samples.store(is_of_all_samples, std::memory_order_relaxed); }

void check_batch_is_of_share() {
  if (!was_of_all_samples.load(std::memory_order_relaxed) || !is_initialized()) return;
  was_of_all_samples = false;
  warn_once_per_job(
      "each of the " + std::to_string(get_world_size()) +
      " ranks trains on batches of a DataLoader that has no sampler, so it reads all samples of its dataset: where the "
      "datasets are the same, the ranks repeat each other's work. Give the loader a data::DistributedSampler. If each "
      "rank's "
      "dataset has other samples, all is well.");
}

}  // namespace cohort::comm
