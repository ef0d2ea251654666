/// The Python names that files of torch.save may refer to.
#pragma once

#include <optional>
#include <string>

#include "cohort/base/pickle/pickle_value.h"
#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// Returns the complete text of the error, or "" for names with which tensors and plain values are made.
std::string refuse_pt_name(const base::PythonName& name);

/// Returns the dtype of torch.FloatStorage and similar classes; torch.storage.UntypedStorage has bytes. Returns nothing for other
/// names.
std::optional<Dtype> pt_storage_dtype(const base::PythonName& name);
/// Returns the dtype of torch.float32 and similar names. Returns nothing for other names.
std::optional<Dtype> pt_dtype(const base::PythonName& name);
bool is_numpy_scalar(const base::PythonName& name);

}  // namespace cohort::files
