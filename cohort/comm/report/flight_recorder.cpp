#include "cohort/comm/report/flight_recorder.h"

#include <c10/util/Exception.h>

#include "cohort/base/file/atomic_file.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/shm/report/dump.h"
#include "cohort/shm/report/formats.h"
#include "cohort/shm/report/registry.h"

namespace cohort::comm {

std::string dump_flight_recorder() { return shm::to_json(shm::read_process_trace("")); }

std::string dump_flight_recorder_text() { return shm::to_text(shm::read_process_trace("")); }

std::string save_flight_recorder(const std::string& prefix) {
  std::string path = shm::dump_traces(prefix);
  TORCH_CHECK(!path.empty(), "[cohort] the flight recorder cannot be written",
              prefix.empty() ? std::string() : " to files that begin with \"" + prefix + "\"",
              "; the warning before this one says why");
  return path;
}

void save_chrome_trace(const std::string& path) {
  or_throw(base::write_file_atomically(path, shm::to_chrome_trace(shm::read_process_trace(""))));
}

}  // namespace cohort::comm
