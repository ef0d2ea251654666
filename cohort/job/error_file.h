/// The file in which a worker tells its launcher why it ended (TORCHELASTIC_ERROR_FILE), in the format of
/// torch/distributed/elastic/multiprocessing/errors: {"message": {"message": ..., "extraInfo": {...}}}.
#pragma once

#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Writes `message` to $TORCHELASTIC_ERROR_FILE; nothing if that is unset or cannot be written.
COHORT_API void write_error_file(const std::string& message);

/// The JSON text of such a file.
COHORT_API std::string error_file_text(const std::string& message, long long timestamp);

}  // namespace cohort::comm
