/// Loads and saves tensors as NumPy's files, like torch.from_numpy(np.load(path)) and np.save(path, tensor.numpy()) in Python.
///
/// Supports all types of NumPy and LibTorch: bool, 8 to 64 bit integers with and without sign, float16 to float64, complex64 and
/// complex128; both byte orders, C and Fortran order (the tensor is contiguous in both cases). Refuses arrays of Python objects,
/// which are pickles: runs no code, as with NumPy's allow_pickle=False.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "cohort/export.h"

namespace cohort::data {

/// Throws c10::Error with the file, the byte and what was expected there.
COHORT_API at::Tensor load_npy(const std::string& path);

/// Writes any strided tensor, on any device. The arguments have the order of np.save. The file appears complete or not at all,
/// readable by its owner. Throws c10::ValueError for a type that NumPy lacks, such as bfloat16, and c10::Error if writing fails.
COHORT_API void save_npy(const std::string& path, const at::Tensor& tensor);

/// Returns all arrays of an archive of np.savez or np.savez_compressed by their names. Throws c10::Error like load_npy.
COHORT_API std::map<std::string, at::Tensor> load_npz(const std::string& path);

}  // namespace cohort::data
