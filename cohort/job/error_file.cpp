#include "cohort/job/error_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <ctime>

#include "cohort/base/env.h"
#include "cohort/base/json_text.h"

namespace cohort::job {

std::string error_file_text(const std::string& message, long long timestamp) {
  return "{\"message\": {\"message\": " + base::json_string(message) +
         ", \"extraInfo\": {\"py_callstack\": " + base::json_string(message) + ", \"timestamp\": \"" +
         std::to_string(timestamp) + "\"}}}";
}

void write_error_file(const std::string& message) {
  const auto path = base::get_env("TORCHELASTIC_ERROR_FILE");
  if (!path || path->empty()) return;
  const int fd = ::open(path->c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const auto text = error_file_text(message, std::time(nullptr));
  [[maybe_unused]] const auto written = ::write(fd, text.data(), text.size());
  ::close(fd);
}

}  // namespace cohort::job
