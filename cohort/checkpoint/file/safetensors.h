/// Tensors in files, in the safetensors format that Python's `safetensors` package reads and writes:
///
///     cohort::checkpoint::save_file(cohort::checkpoint::state_dict(*model), "model.safetensors", {{"epoch", "3"}});
///     cohort::checkpoint::StateDict tensors = cohort::checkpoint::load_file("model.safetensors");
///
/// A file is 8 bytes with the length N of the header, N bytes of JSON (name -> dtype, shape, offsets), then the data. The
/// header is checked in full before use: length, numbers, dtypes, sizes, and that the tensors fill the
/// data without overlap or gap. Values are little-endian.
///
/// Thread-safety: functions of one path must not run at the same time, except two loads.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>

#include "cohort/checkpoint/optimizer/named_tensors.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

using FileMetadata = std::map<std::string, std::string>;

/// The treatment of tensors that share memory, such as tied weights.
enum class SharedTensors {
  /// Throws, as Python's package does: after loading they would no longer be tied.
  kRefuse,
  /// Writes each of them in full.
  kSaveEach,
};

struct SaveFileOptions {
  SharedTensors shared_tensors = SharedTensors::kRefuse;
};

/// Writes all tensors into one file. They may be on any device and need not be contiguous.
/// The file is complete or does not appear at all: it is written beside `path`, synced to disk and renamed. After a failure
/// nothing is left, and an existing file stays. Only its owner may read it.
/// Throws c10::ValueError for tensors that cannot be stored (undefined, sparse, unknown dtype, shared), c10::Error if
/// the disk reports an error.
COHORT_API void save_file(const StateDict& tensors, const std::string& path, const FileMetadata& metadata = {},
                          const SaveFileOptions& options = {});

struct LoadFileOptions {
  /// The device of the tensors.
  c10::Device device = c10::kCPU;
  /// Whether the tensors are views of the mapped file: a page is read at its first use, and processes share the kernel's copy.
  /// Writes to them stay in this process. If somebody truncates the file while they live, SIGBUS ends the process.
  bool mmap = false;
};

/// Reads all tensors of a file; each owns its memory. They are in the order of the file's header, which is the order
/// given to save_file.
/// Throws c10::Error naming file, tensor and reason if the file cannot be read or is not well formed.
COHORT_API StateDict load_file(const std::string& path, const LoadFileOptions& options = {});
[[deprecated("use load_file(path, {.device = ...})")]] inline StateDict load_file(const std::string& path,
                                                                                  c10::Device device,
                                                                                  LoadFileOptions options = {}) {
  options.device = device;
  return load_file(path, options);
}

/// Returns the `__metadata__` of a file; empty if it has none. Throws as load_file; does not read the tensors.
COHORT_API FileMetadata load_metadata(const std::string& path);

}  // namespace cohort::checkpoint
