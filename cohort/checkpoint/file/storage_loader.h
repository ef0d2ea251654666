/// The storages of a .pt file as LibTorch's, each on the device that it is wanted on.
#pragma once

#include <c10/core/Storage.h>

#include <string>
#include <vector>

#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/pt/pt_file.h"

namespace cohort::checkpoint::detail {

/// storages[i] is that of file.storages[i]. `function`: the one that the user has called. Throws c10::Error.
std::vector<c10::Storage> load_storages(const char* function, const files::RandomAccessFile& file,
                                        const files::PtFile& description, const LoadOptions& options);

}  // namespace cohort::checkpoint::detail
