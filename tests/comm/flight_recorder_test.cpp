#include "cohort/comm/report/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cohort/base/file.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(FlightRecorder, IsEmptyWithoutGroups) {
  EXPECT_THAT(dump_flight_recorder(),
              StartsWith("{\"version\":\"2.10\",\"comm_lib_version\":\"shm\",\"pg_config\":{}"));
  EXPECT_THAT(dump_flight_recorder(), HasSubstr("\"entries\":[\n]}\n"));
  EXPECT_THAT(dump_flight_recorder_text(), HasSubstr(" UTC\n\nno group\n"));
}

TEST(FlightRecorder, WritesFiles) {
  const test::TemporaryFolder folder;
  const std::string path = write_flight_recorder(folder / "run_");
  EXPECT_THAT(path, StartsWith(folder / "run_pid"));
  EXPECT_THAT(base::read_file(path).value(), HasSubstr("no group\n"));
  write_chrome_trace(folder / "trace.json");
  EXPECT_THAT(base::read_file(folder / "trace.json").value(), HasSubstr("\"traceEvents\":[\n]}\n"));
}

TEST(FlightRecorder, PathThatCannotBeWrittenMessage) {
  EXPECT_THAT(
      test::error_of([] { write_flight_recorder("/proc/cannot/run_"); }),
      StartsWith("the flight recorder cannot be written to files that begin with \"/proc/cannot/run_\"; the warning "
                 "before this says why"));
  EXPECT_THAT(test::error_of([] { write_chrome_trace("/proc/cannot.json"); }),
              StartsWith("cannot write \"/proc/cannot.json\"\n  caused by: "));
}

}  // namespace
}  // namespace cohort
