/// The files behind safetensors.h and training_checkpoint.h. `function`: the function that the user has called, for errors.
#pragma once

#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/files/tensors/safetensors/safetensors_header.h"

namespace cohort::checkpoint::detail {

void write_file(const char* function, const StateDict& tensors, const std::string& path, const FileMetadata& metadata,
                const SaveFileOptions& options);
StateDict read_tensors(const char* function, const std::string& path, const LoadFileOptions& options = {});
files::SafetensorsHeader read_header(const char* function, const std::string& path);

}  // namespace cohort::checkpoint::detail
