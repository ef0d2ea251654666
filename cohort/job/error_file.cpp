#include "cohort/job/error_file.h"

#include <ctime>

#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/json_text.h"

namespace cohort::job {

std::string error_file_text(const std::string& message, long long timestamp) {
  return "{\"message\": {\"message\": " + base::json_string(message) +
         ", \"extraInfo\": {\"py_callstack\": " + base::json_string(message) + ", \"timestamp\": \"" +
         std::to_string(timestamp) + "\"}}}";
}

void write_error_file(const std::string& message) {
  const auto path = base::get_env("TORCHELASTIC_ERROR_FILE");
  if (!path || path->empty()) return;
  // The path may be anything: a pipe must not block a rank that has failed.
  if (const auto file = base::open_for_writing(*path); file) {
    (void)base::write_all(file->get(), error_file_text(message, std::time(nullptr)));
  }
}

}  // namespace cohort::job
