// Logs of a run, as a run that goes on finds them. The first byte says of which kind, and from which step on they are purged.
// What was taken once is taken again, and goes on.
#include <unistd.h>

#include <string>

#include "cohort/base/file/file.h"
#include "cohort/extras/report/records/csv_log.h"
#include "cohort/report/records/json_lines_log.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::report {
namespace {

template <typename Log>
void go_on(const std::string& path, int64_t purge_step) {
  {
    auto log = Log::open(path, {.purge_step = purge_step});
    if (!log) {
      FUZZ_CHECK(log.error().describe().size() < 2000);
      return;
    }
    FUZZ_CHECK(log->add({.step = purge_step, .time = 1, .values = {{"new", 0.5}}}).ok());
  }
  const std::string after = base::read_file(path).value();
  FUZZ_CHECK(after.ends_with("\n"));
  FUZZ_CHECK(Log::open(path).ok());
  FUZZ_CHECK(base::read_file(path).value() == after);
}

}  // namespace
}  // namespace cohort::report

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  if (size == 0) return 0;
  // In memory, where nothing waits for a disk.
  const std::string path = "/dev/shm/cohort_fuzz_run_logs." + std::to_string(::getpid());
  {
    const auto file = base::open_for_writing(path);
    if (!file || !base::write_all(file->get(), fuzz::text_of(data + 1, size - 1), path)) return 0;
  }
  const int64_t purge_step = data[0] >> 1;
  if (data[0] & 1) {
    report::go_on<report::CsvLog>(path, purge_step);
  } else {
    report::go_on<report::JsonLinesLog>(path, purge_step);
  }
  ::unlink(path.c_str());
  return 0;
}
