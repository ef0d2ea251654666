#include "cohort/elastic/plan/worker_command.h"
#include "cohort/base/file/atomic_file.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace cohort::elastic {
namespace {

using Words = std::vector<std::string>;

TEST(WorkerCommand, ScriptIsStartedByTheInterpreter) {
  EXPECT_EQ(*worker_command({.name = "train.py", .arguments = {"--rank=${local_rank}"}}, 1, "/bin/sh"),
            (Words{"/bin/sh", "-u", "train.py", "--rank=1"}));
}

TEST(WorkerCommand, ModuleIsStartedByTheInterpreter) {
  EXPECT_EQ(*worker_command({.name = "pkg.train", .arguments = {"a"}, .as_module = true}, 0, "/bin/sh"),
            (Words{"/bin/sh", "-u", "-m", "pkg.train", "a"}));
}

TEST(WorkerCommand, ProgramIsStartedDirectly) {
  EXPECT_EQ(*worker_command({.name = "/bin/echo", .arguments = {"$local_rank", "$$"}}, 2, "/bin/sh"),
            (Words{"/bin/echo", "2", "$"}));
  EXPECT_EQ(*worker_command({.name = "echo"}, 0, "/bin/sh"), Words{"echo"});
}

TEST(WorkerCommand, FileThatIsNotExecutableIsAScript) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(base::write_file_atomically(folder / "train", "print(1)"));
  EXPECT_EQ(*worker_command({.name = folder / "train"}, 0, "/bin/sh"), (Words{"/bin/sh", "-u", folder / "train"}));
  EXPECT_EQ(worker_command({.name = folder / "train", .without_python = true}, 0, "/bin/sh").error().describe(),
            "cannot execute \"" + folder.path() + "/train\": Permission denied (EACCES)");
}

TEST(WorkerCommand, ErrorsMessage) {
  EXPECT_EQ(worker_command({.name = "x", .as_module = true, .without_python = true}, 0, "/bin/sh").error().describe(),
            "Don't use both the '--no-python' flag and the '--module' flag at the same time.");
  EXPECT_EQ(worker_command({.name = "./missing"}, 0, "/bin/sh").error().describe(),
            "cannot execute \"./missing\": No such file or directory (ENOENT)");
  EXPECT_EQ(worker_command({.name = "a.py"}, 0, "no-such-python").error().describe(),
            "cannot find \"no-such-python\" in PATH\n"
            "  hint: write \"./no-such-python\" for a program in the current folder");
}

}  // namespace
}  // namespace cohort::elastic
