/// The Python names that files of torch.save may refer to.
#pragma once

#include <optional>
#include <string>

#include "cohort/base/pickle/pickle_value.h"
#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// The whole text of the error, or "" for names that tensors and plain values are made with.
std::string refuse_pt_name(const base::PythonName& name);

/// torch.FloatStorage; torch.storage.UntypedStorage is bytes. Nothing for other names.
std::optional<Dtype> pt_storage_dtype(const base::PythonName& name);
/// torch.float32. Nothing for other names.
std::optional<Dtype> pt_dtype(const base::PythonName& name);
bool is_numpy_scalar(const base::PythonName& name);

}  // namespace cohort::files
