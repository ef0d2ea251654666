/// Values as the pickle of a .pt file describes them, and their storages.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "cohort/base/pickle/pickle_value.h"
#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/files/tensors/pt/pt_writer.h"

namespace cohort::checkpoint::detail {

struct TorchTree {
  base::PickleValue root;
  /// The bytes of `kept`.
  std::vector<files::StorageBytes> storages;
  /// The storages, on the CPU.
  std::vector<c10::Storage> kept;
};

/// Throws c10::ValueError: `cannot write "optimizer.lr": ...`.
TorchTree describe(const c10::IValue& value, const SaveOptions& options);
TorchTree describe(const StateDict& tensors, const SaveOptions& options);

}  // namespace cohort::checkpoint::detail
