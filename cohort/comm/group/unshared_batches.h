/// Warns once if ranks that average their gradients train on the same samples. A data loader without a distributed sampler gives
/// every rank all samples, so that ranks only repeat each other's work.
#pragma once

namespace cohort::comm {

/// Notes that a data loader has returned a batch: from all samples, or from this rank's shard. Cheap; any thread.
void note_batch(bool is_of_all_samples);
/// Called when a forward pass of training begins whose gradients several ranks will average: warns once if the last batch was
/// from all samples.
void check_batch_is_of_share();

}  // namespace cohort::comm
