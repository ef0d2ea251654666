#include "tools/cohort/flags.h"

#include <gtest/gtest.h>

namespace cohort::cli {
namespace {

using Words = std::vector<std::string>;
using Given = std::vector<GivenFlag>;

const std::vector<Flag> kFlags = {
    {"--nproc-per-node"}, {"--node-rank"}, {"--no-python", false}, {"--log-dir"}, {"--tee"}, {"-t"}, {"-m", false}};

SplitCommandLine split(const Words& words) { return split_command_line(words, kFlags).value(); }
std::string error_of(const Words& words) { return split_command_line(words, kFlags).error().describe(); }

TEST(Flags, ProgramTakesEverythingAfterIt) {
  const SplitCommandLine line = split({"--nproc-per-node", "2", "-m", "train", "--tee", "--bogus", "-x"});
  EXPECT_EQ(line.flags, (Given{{"--nproc-per-node", "2"}, {"-m"}}));
  EXPECT_EQ(line.program, (Words{"train", "--tee", "--bogus", "-x"}));
}

TEST(Flags, SpellingsOfOneFlag) {
  const Given expected = {{"--nproc-per-node", "2"}};
  EXPECT_EQ(split({"--nproc_per_node", "2", "a"}).flags, expected);
  EXPECT_EQ(split({"--nproc_per_node=2", "a"}).flags, expected);
  EXPECT_EQ(split({"--nproc", "2", "a"}).flags, expected);
  EXPECT_EQ(split({"-t3", "a"}).flags, (Given{{"-t", "3"}}));
  EXPECT_EQ(split({"-t", "0:1,1:3", "a"}).flags, (Given{{"-t", "0:1,1:3"}}));
}

TEST(Flags, UnderscoresInValuesStay) {
  EXPECT_EQ(split({"--log_dir=my_logs", "a"}).flags, (Given{{"--log-dir", "my_logs"}}));
}

TEST(Flags, ShortFlagsTakeValuesAsArgparseDoes) {
  for (const Words& words : {Words{"-t", "3", "a"}, Words{"-t3", "a"}, Words{"-t=3", "a"}}) {
    EXPECT_EQ(split(words).flags, (Given{{"-t", "3"}}));
  }
}

TEST(Flags, DoubleDashEndsTheFlags) { EXPECT_EQ(split({"--", "-odd-name", "x"}).program, (Words{"-odd-name", "x"})); }

TEST(Flags, NoProgram) { EXPECT_TRUE(split({"--log-dir", "x"}).program.empty()); }

TEST(Flags, ErrorsMessage) {
  EXPECT_EQ(error_of({"--no-pyton", "a"}),
            "unknown flag --no-pyton (did you mean \"--no-python\"?)\n"
            "  hint: cohort run --help lists the flags; the program's own flags go after the program");
  EXPECT_EQ(error_of({"--no", "a"}), "--no could be --node-rank or --no-python");
  EXPECT_EQ(error_of({"--no-python=1", "a"}), "--no-python takes no value, got \"--no-python=1\"");
  EXPECT_EQ(error_of({"--log-dir"}), "--log-dir needs a value");
  EXPECT_EQ(error_of({"-z"}), "unknown flag -z\n  hint: cohort run --help lists the flags");
}

}  // namespace
}  // namespace cohort::cli
