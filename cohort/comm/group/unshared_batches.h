/// One warning where ranks that average their gradients train on the same samples: a data loader without a sampler that shares
/// samples out gives every rank all of them, so that more ranks only repeat each other's work.
#pragma once

namespace cohort::comm {

/// A data loader has given a batch of all samples, or of this rank's share. Cheap; any thread.
void note_batch(bool is_of_all_samples);
/// A forward pass of training begins, of which several ranks will average gradients: warns once if the last batch was of all
/// samples.
void check_batch_is_of_share();

}  // namespace cohort::comm
