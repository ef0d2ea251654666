#include "tools/cohort/run.h"

#include <gtest/gtest.h>

#include "cohort/base/file/atomic_file.h"
#include "tests/support/environment.h"
#include "tests/support/temporary_folder.h"

namespace cohort::cli {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

elastic::LaunchFlags flags_of(Words words) {
  words.push_back("prog");
  elastic::LaunchFlags flags;
  const auto help = parse_run_flags(words, &flags);
  EXPECT_TRUE(help && !*help) << (help ? "help" : help.error().describe());
  return flags;
}

std::string run_error_of(const Words& words) {
  elastic::LaunchFlags flags;
  const auto help = parse_run_flags(words, &flags);
  return help ? "none" : help.error().describe();
}

TEST(RunFlags, EachStandsInOnePlace) {
  const auto flags = flags_of({"--nproc-per-node=3", "--role", "trainer", "--max-restarts=7", "--local-addr=10.0.0.9",
                               "--node-rank=2", "--master-port=1234", "--shutdown-timeout=1.5",
                               "--restart-backoff=0.25", "--log-dir=/logs", "-m", "-t3"});
  EXPECT_EQ(flags.local_world_size, "3");
  EXPECT_EQ(flags.tee, "3");
  EXPECT_EQ(flags.rendezvous.node_rank, 2);
  EXPECT_EQ(flags.rendezvous.master_port, 1234);
  EXPECT_EQ(flags.plan.rendezvous.role, "trainer");
  EXPECT_EQ(flags.plan.rendezvous.max_restarts, 7);
  EXPECT_EQ(flags.plan.rendezvous.local_address, "10.0.0.9");
  EXPECT_EQ(flags.plan.shutdown_timeout, 1500ms);
  EXPECT_EQ(flags.plan.restart_backoff, 250ms);
  EXPECT_EQ(flags.plan.logs.folder, "/logs");
  EXPECT_EQ(flags.plan.program.name, "prog");
  EXPECT_TRUE(flags.plan.program.as_module);
}

TEST(RunFlags, LineOverridesEnvironmentOverridesFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "job.toml";
  ASSERT_TRUE(base::write_file_atomically(path, "role = \"file\"\ntee = \"1\"\nredirects = \"3\"\n"));
  const test::Environment environment({{"PET_ROLE", "environment"}, {"PET_TEE", "2"}});
  const auto flags = flags_of({"--config", path, "--role=line"});
  EXPECT_EQ(flags.plan.rendezvous.role, "line");
  EXPECT_EQ(flags.tee, "2");
  EXPECT_EQ(flags.redirects, "3");
}

// A template may leave a variable empty. The flag after it stays its own.
TEST(RunFlags, AnEmptyValueTakesNoOtherFlag) {
  const test::Environment environment(
      {{"PET_NODE_RANK", ""}, {"PET_SHUTDOWN_TIMEOUT", ""}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "4"}});
  const auto flags = flags_of({"--log-dir=", "--nproc-per-node=3"});
  EXPECT_EQ(flags.rendezvous.node_rank, std::nullopt);
  EXPECT_EQ(flags.plan.shutdown_timeout, 4s);
  EXPECT_EQ(flags.plan.logs.folder, "");
  EXPECT_EQ(flags.local_world_size, "3");
}

TEST(RunFlags, VariablesWithoutAFlag) {
  EXPECT_EQ(flags_of({}).plan.timer_file, std::nullopt);
  const test::Environment environment({{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"},
                                       {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "0.5"},
                                       {"TORCHELASTIC_ENABLE_FILE_TIMER", "1"},
                                       {"TORCHELASTIC_HEALTH_CHECK_PORT", "8080"}});
  EXPECT_EQ(flags_of({}).plan.shutdown_timeout, 7s);
  const auto flags = flags_of({"--shutdown-timeout=2"});
  EXPECT_EQ(flags.plan.shutdown_timeout, 2s);
  EXPECT_EQ(flags.plan.stuck_timeout, 500ms);
  EXPECT_EQ(flags.plan.timer_file, "");
  EXPECT_EQ(flags.plan.health_check_port, 8080);
}

TEST(RunFlags, UseEnvGivesNoLocalRank) {
  elastic::LaunchFlags flags;
  flags.plan.program.adds_local_rank = true;
  ASSERT_TRUE(parse_run_flags({"prog"}, &flags));
  EXPECT_TRUE(flags.plan.program.adds_local_rank);
  ASSERT_TRUE(parse_run_flags({"--use-env", "prog"}, &flags));
  EXPECT_FALSE(flags.plan.program.adds_local_rank);
}

TEST(RunFlags, ErrorsMessage) {
  EXPECT_EQ(run_error_of({"--nnodes=2"}), "no program given\n  hint: cohort run [flags] PROGRAM [arguments]");
  EXPECT_EQ(run_error_of({"--node-rank=-1", "a"}), "--node-rank=-1 must be a whole number >= 0");
  EXPECT_EQ(run_error_of({"--master-port=0", "a"}), "--master-port=0 must be a whole number >= 1");
  EXPECT_EQ(run_error_of({"--max-restarts=1.5", "a"}), "--max-restarts=1.5 must be a whole number >= 0");
  EXPECT_EQ(run_error_of({"--restart-backoff=x", "a"}), "--restart-backoff=x must be a number of seconds >= 0");
  EXPECT_EQ(run_error_of({"--shutdown-timeout=-1", "a"}), "--shutdown-timeout=-1 must be a number of seconds >= 0");
  EXPECT_EQ(run_error_of({"--monitor-interval=often", "a"}),
            "--monitor-interval=often must be a number of seconds >= 0");
  EXPECT_EQ(run_error_of({"--start-method=forks", "a"}),
            "--start-method=forks must be spawn, fork or forkserver (did you mean \"fork\"?)");
  EXPECT_EQ(run_error_of({"--logs-specs=mine", "a"}),
            "--logs-specs=mine names a plug-in of Python's torchrun, which this launcher cannot load\n"
            "  hint: use --log-dir, --redirects, --tee and the filters to choose where output goes");
}

}  // namespace
}  // namespace cohort::cli
