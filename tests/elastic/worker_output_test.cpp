#include "cohort/elastic/output/worker_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace cohort::elastic {
namespace {

// A daemon of a worker may hold a pipe open, or write to it for ever: /dev/zero always has more.
TEST(WorkerOutput, TakesWhatWaitsAtTheEndAndNoMore) {
  const test::TemporaryFolder folder;
  Consoles consoles;
  WorkerOutput output({}, folder.path(), consoles);
  base::Pipe held = base::make_pipe().value();
  base::Fd endless(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(output.add_output({.file = folder / "held", .tee = true}, "[held]:", held.read_end));
  ASSERT_TRUE(output.add_errors({.file = folder / "endless", .tee = true}, "[endless]:", endless));
  ASSERT_TRUE(base::write_all(held.write_end.get(), std::string(100, '-') + "\nlast line"));
  output.finish();
  EXPECT_EQ(*base::read_file(folder / "held"), std::string(100, '-') + "\nlast line");
  EXPECT_EQ(*base::read_file(folder / "endless"), "");
}

}  // namespace
}  // namespace cohort::elastic
