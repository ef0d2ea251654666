/// Writes files as torch.save does: a zip file of a pickle and storages.
///
///     PickleValue tensor = pt_tensor({.key = "0", .dtype = Dtype::kFloat32, .shape = {2, 3}});
///     PickleValue dict = PickleValue::dict({{PickleValue::of_text("weight"), tensor}});
///     write_pt_file("model.pt", dict, {{.bytes = weight}});
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/atomic_file.h"
#include "cohort/base/pickle/pickle_value.h"
#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// The bytes of one storage: in memory, or read when they are needed.
struct StorageBytes {
  std::string_view bytes = {};
  /// If set, returns the `size` bytes instead, from `first` on. Called by several threads at once.
  std::function<base::Result<void>(uint64_t first, std::span<char> to)> read = {};
  uint64_t size = 0;

  uint64_t num_bytes() const { return read ? size : bytes.size(); }
};

/// A tensor as a view of a storage.
struct PtTensorParts {
  /// The index of the storage in the file, as a text.
  std::string key;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape = {};
  /// If empty, the tensor is row-major.
  std::vector<int64_t> strides = {};
  int64_t offset = 0;
  /// The number of elements of the storage. 0 means as many as the tensor has.
  int64_t storage_elements = 0;
  /// The device to which Python loads the tensor.
  std::string device = "cpu";
  bool requires_grad = false;
  bool is_parameter = false;
  bool is_conjugate = false;
  bool is_negative = false;
};

/// Returns the call that makes the tensor in Python.
base::PickleValue pt_tensor(const PtTensorParts& parts);
/// Returns a collections.OrderedDict. `state` has its attributes, such as a state dict's {"_metadata": ...}; None if it has none.
base::PickleValue pt_ordered_dict(std::vector<base::PickleEntry> entries, base::PickleValue state = {});

struct PtWriteOptions {
  base::Sync sync = base::Sync::kYes;
  int num_threads = 2;
};

/// Writes the file, in which storages[i] has the key i. The file appears complete or not at all, with mode 0600.
base::Result<void> write_pt_file(const std::string& path, const base::PickleValue& root,
                                 const std::vector<StorageBytes>& storages, const PtWriteOptions& options = {});

}  // namespace cohort::files
