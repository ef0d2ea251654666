/// Loads the storages of a .pt file, each to the device where it is wanted.
#pragma once

#include <c10/core/Storage.h>

#include <string>
#include <vector>

#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/pt/pt_file.h"

namespace cohort::checkpoint::detail {

/// Returns storages[i] for file.storages[i]. `function`: the function that the user has called. Throws c10::Error.
std::vector<c10::Storage> load_storages(const char* function, const files::RandomAccessFile& file,
                                        const files::PtFile& description, const LoadOptions& options);

}  // namespace cohort::checkpoint::detail
