// Which failures an agent does not answer with restart after restart, and by what the starts of a job know that they are one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/base/text/text.h"
#include "tests/elastic/launcher.h"

namespace cohort::elastic {
namespace {

using testing::HasSubstr;

TEST(Agent, ProgramThatCannotStartIsNotTriedAgain) {
  Launcher launcher({"--max-restarts=5"}, "echo start; exec ./no_such_program_here");
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_EQ(count_of(launcher.output(), "start"), 1);
  EXPECT_THAT(
      launcher.errors(),
      HasSubstr("a worker's program cannot start here; not restarting it, as it would end the same way again\n"));
}

/// Leaves an error in words, as a worker's exception does.
std::string say_error(const std::string& error) {
  return R"(printf '{"message": {"message": ")" + error + R"("}}' > $TORCHELASTIC_ERROR_FILE; )";
}

TEST(Agent, AnErrorOfTheProgramThatComesAgainIsNotTriedAThirdTime) {
  const std::string text =
      "the workers have ended twice with the same error of the program, soon after their start; not restarting them, "
      "as "
      "they would end the same way again\n";
  struct Case {
    std::string script;
    int num_starts;
  };
  for (const auto& [script, num_starts] :
       {Case{say_error("c10::ValueError: x") + "kill -ABRT $$", 2}, Case{say_error("TypeError: x") + "exit 1", 2},
        Case{"exit 2", 2}, Case{say_error("c10::DistStoreError: x") + "kill -ABRT $$", 4}}) {
    Launcher launcher({"--max-restarts=3"}, "echo start; " + script);
    EXPECT_EQ(launcher.finish(), 1);
    EXPECT_EQ(count_of(launcher.output(), "start"), num_starts) << script;
    EXPECT_EQ(count_of(launcher.errors(), text), num_starts == 2 ? 1 : 0) << launcher.errors();
  }
}

TEST(Agent, AnErrorThatDiffersIsTriedAgain) {
  Launcher launcher(
      {"--max-restarts=3"},
      R"(echo start; printf '{"message": {"message": "ValueError: step %s"}}' $TORCHELASTIC_RESTART_COUNT)"
      " > $TORCHELASTIC_ERROR_FILE; exit 1");
  EXPECT_EQ(launcher.finish(), 1);
  EXPECT_EQ(count_of(launcher.output(), "start"), 4);
}

TEST(Agent, EveryStartOfAJobHasItsNameAndNoOtherJob) {
  std::set<std::string> jobs;
  for (int i = 0; i < 2; ++i) {
    Launcher launcher({"--max-restarts=1", "--nproc-per-node=2"},
                      "echo job=$COHORT_JOB; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || { sleep 0.2; exit 1; }");
    EXPECT_EQ(launcher.finish(), 0);
    const auto names = values_of(launcher.output(), "job");
    EXPECT_EQ(names.size(), 1u);
    jobs.insert(names.begin(), names.end());
  }
  EXPECT_EQ(jobs.size(), 2u);
  EXPECT_FALSE(jobs.contains(""));
}

TEST(Agent, NodesOfAJobHaveOneNameForIt) {
  const std::string at = endpoint();
  Launcher first(node(at, "2"), "echo job=$COHORT_JOB");
  Launcher second(node(at, "2"), "echo job=$COHORT_JOB");
  EXPECT_EQ(first.finish(), 0);
  EXPECT_EQ(second.finish(), 0);
  EXPECT_EQ(first.output(), second.output());
  EXPECT_NE(first.output(), "job=\n");
}

}  // namespace
}  // namespace cohort::elastic
