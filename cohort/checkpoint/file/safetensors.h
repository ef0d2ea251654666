/// Tensors in files, in the safetensors format that Python's `safetensors` package reads and writes:
///
///     cohort::checkpoint::save_file(cohort::checkpoint::state_dict(*model), "model.safetensors", {{"epoch", "3"}});
///     cohort::checkpoint::StateDict tensors = cohort::checkpoint::load_file("model.safetensors");
///
/// A file is 8 bytes with the length N of the header, N bytes of JSON (name -> dtype, shape, place), then the data. The
/// header is checked in full before any of it is believed: length, numbers, dtypes, sizes, and that the tensors fill the
/// data without overlap or gap. Values are little-endian.
///
/// Thread-safety: functions of one path must not run at the same time, except two loads.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>

#include "cohort/checkpoint/state/named_tensors.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

using FileMetadata = std::map<std::string, std::string>;

/// What save_file does with tensors that overlap in memory, such as tied weights.
enum class SharedTensors {
  /// Throw, as Python's package does: after loading they would no longer be tied.
  kRefuse,
  /// Write each of them in full.
  kSaveEach,
};

struct SaveOptions {
  SharedTensors shared_tensors = SharedTensors::kRefuse;
};

/// Writes all tensors into one file. They may lie on any device and need not be contiguous.
/// The file appears whole or not at all: it is written beside `path`, synced to disk and renamed; on failure nothing is
/// left and a file that was there before stays. Only its owner may read it.
/// Throws c10::ValueError for tensors that cannot be stored (undefined, sparse, unknown dtype, shared), c10::Error when
/// the disk refuses.
COHORT_API void save_file(const StateDict& tensors, const std::string& path, const FileMetadata& metadata = {},
                          const SaveOptions& options = {});

struct LoadFileOptions {
  /// The tensors are views of the mapped file: nothing is read before it is used, and processes share the kernel's copy. What is
  /// written to them stays in this process. Whoever shortens the file while they live ends the process by SIGBUS.
  bool mmap = false;
};

/// Reads all tensors of a file; each owns its memory. They come in the order of the file's header, which is the order
/// given to save_file.
/// Throws c10::Error naming file, tensor and reason when the file cannot be read or is not well formed.
COHORT_API StateDict load_file(const std::string& path, c10::Device device = c10::kCPU,
                               const LoadFileOptions& options = {});

/// The `__metadata__` of a file; empty when it has none. Throws as load_file; the tensors are not read.
COHORT_API FileMetadata load_metadata(const std::string& path);

}  // namespace cohort::checkpoint
