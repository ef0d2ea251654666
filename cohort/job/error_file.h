/// The file in which a worker tells its launcher why it ended (TORCHELASTIC_ERROR_FILE), in the format of
/// torch/distributed/elastic/multiprocessing/errors: {"message": {"message": ..., "extraInfo": {...}}}.
#pragma once

#include <string>

namespace cohort::job {

/// Writes `message` to $TORCHELASTIC_ERROR_FILE. Does nothing if that is unset or cannot be written.
void write_error_file(const std::string& message);

/// Returns the JSON text of such a file.
std::string error_file_text(const std::string& message, long long timestamp);

}  // namespace cohort::job
