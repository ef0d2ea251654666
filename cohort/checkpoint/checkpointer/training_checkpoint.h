/// A training run in one file: weights, optimizer, position and random numbers. A run that is stopped and resumed ends with
/// the same bits as one that was not stopped.
///
///     if (rank == 0) save_checkpoint(*model, &optimizer, "run.safetensors", {.step = step, .epoch = epoch});
///     ...
///     TrainingProgress progress = load_checkpoint(*model, &optimizer, "run.safetensors");
///
/// The file is a safetensors file with the keys `model.<name>`, `optimizer.<key>`, `rng.cpu` and `extra.<name>`; the
/// position is in its metadata.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/optimizer/named_tensors.h"
#include "cohort/checkpoint/state/rng_state.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/export.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort::checkpoint {

struct TrainingProgress {
  int64_t step = 0;
  int64_t epoch = 0;
  /// Completed batches of this epoch: DataLoader::start(batch) continues there.
  int64_t batch = 0;
  /// Anything else to keep, such as other ranks' random-number states.
  StateDict extra = StateDict();
  FileMetadata metadata = {};
};

/// Writes the file as save_file does. `optimizer` may be null. Tied weights are written in full under each name.
COHORT_API void save_checkpoint(const torch::nn::Module& module, const torch::optim::Optimizer* optimizer,
                                const std::string& path, const TrainingProgress& progress = {});

struct LoadCheckpointOptions {
  /// Whether LibTorch's default CPU generator continues with the saved random numbers. When one rank saved and several load, all
  /// get that rank's; keep each rank's rng_state() in `extra` where that matters.
  bool restore_rng = true;
};

/// Restores weights, optimizer and random numbers. `optimizer` may be null.
/// Throws c10::Error, naming the file, when it is damaged, holds no optimizer state where `optimizer` is given, or does not fit
/// the model or the optimizer.
COHORT_API TrainingProgress load_checkpoint(torch::nn::Module& module, torch::optim::Optimizer* optimizer,
                                            const std::string& path, const LoadCheckpointOptions& options = {});

/// Writes a module's state for Python's safetensors.torch.load_model, and reads what its save_model wrote: of tied
/// weights one is stored, the metadata names the others.
COHORT_API void save_model(const torch::nn::Module& module, const std::string& path, FileMetadata metadata = {});
COHORT_API IncompatibleKeys load_model(torch::nn::Module& module, const std::string& path,
                                       LoadStateDictOptions options = {});

enum class RestoreRng { kYes, kNo };
[[deprecated("use save_checkpoint(module, optimizer, path, progress)")]] inline void save_checkpoint(
    const std::string& path, const torch::nn::Module& module, const torch::optim::Optimizer* optimizer,
    const TrainingProgress& progress = {}) {
  save_checkpoint(module, optimizer, path, progress);
}
[[deprecated("use load_checkpoint(module, optimizer, path, options)")]] inline TrainingProgress load_checkpoint(
    const std::string& path, torch::nn::Module& module, torch::optim::Optimizer* optimizer,
    RestoreRng restore_rng = RestoreRng::kYes) {
  return load_checkpoint(module, optimizer, path, {.restore_rng = restore_rng == RestoreRng::kYes});
}

}  // namespace cohort::checkpoint
