/// PtTree: finds the tensors in the pickle of a .pt file. For pt_file.h.
#pragma once

#include <functional>
#include <unordered_set>

#include "cohort/files/tensors/pt/pt_file.h"

namespace cohort::files {

class PtTree {
 public:
  /// Sets the place of a new storage's bytes, and checks whether they may belong to it. Called once for each key.
  using Locate = std::function<base::Result<void>(PtStorage*)>;

  PtTree(PtFile* file, Locate locate) : file_(*file), locate_(std::move(locate)) {}

  /// Fills storages, tensors and plain from root.
  base::Result<void> read();

 private:
  base::Result<void> visit(const base::PickleValue& value);
  base::Result<void> visit_object(const base::PickleValue& object);
  base::Result<void> visit_name(const base::PickleValue& value);
  base::Result<void> read_tensor(const base::PickleValue& object);
  base::Result<void> read_parameter(const base::PickleValue& object);
  base::Result<void> read_from_type(const base::PickleValue& object);
  base::Result<void> read_namespace(const base::PickleValue& object);
  base::Result<void> read_size(const base::PickleValue& object);
  base::Result<void> read_device(const base::PickleValue& object);
  base::Result<void> read_numpy_scalar(const base::PickleValue& object);
  /// Returns the tensor from which another object is made.
  base::Result<PtTensor> inner_tensor(const base::PickleValue& value);
  base::Result<void> read_storage(const base::PickleValue& value, PtTensor* tensor, int64_t* view_size);

  PtFile& file_;
  Locate locate_;
  std::unordered_set<const void*> seen_;
  std::unordered_map<std::string, size_t> keys_;
  uint64_t num_sizes_ = 0;
};

}  // namespace cohort::files
