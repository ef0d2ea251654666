// The driver with a target that has faults: each is seen, and its input is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "cohort/base/system/env.h"
#include "tests/support/temporary_folder.h"

namespace cohort::fuzz {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

struct Ended {
  int code = 0;
  std::string output;
};

class FuzzDriver : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  Ended run(const std::string& arguments) {
    const auto program = base::get_env("COHORT_BINARY_DIR").value() + "/bin/cohort_fuzz_faulty ";
    FILE* const pipe = popen((program + "--out=" + (folder_ / "out") + " " + arguments + " 2>&1").c_str(), "r");
    Ended ended;
    for (int letter = 0; (letter = std::fgetc(pipe)) != EOF;) ended.output.push_back(static_cast<char>(letter));
    const int status = pclose(pipe);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ended;
  }

  // The one input that was kept.
  std::string kept() {
    std::string text;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
      std::ifstream file(entry.path(), std::ios::binary);
      text.append(std::istreambuf_iterator<char>(file), {});
    }
    return text;
  }

  test::TemporaryFolder folder_;
};

TEST_F(FuzzDriver, RunsWhatItIsGivenAndWhatItMakesFromIt) {
  const auto ended = run("--seconds=0.2 --seed=5 " + write("harmless", "harmless"));
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output,
              ContainsRegex("fuzz: faulty: 1 given inputs and [1-9][0-9]* made from seed 5 in .*, ok\n$"));
}

TEST_F(FuzzDriver, FindsAWordThatIsOneChangeAway) {
  const auto ended =
      run("--seconds=60 --seed=5 --dictionary=" + write("words", "word=\"check\"\n") + " " + write("empty", ""));
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("FUZZ_CHECK(word.empty()) does not hold"));
  EXPECT_EQ(kept(), "check");
}

TEST_F(FuzzDriver, FilesThatAreNotThereMessage) {
  const auto ended = run("/no/such/input");
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.output, "fuzz: cannot read /no/such/input\n");
}

struct Harm {
  const char* word;
  const char* reason;
};

class FuzzDriverSees : public FuzzDriver, public testing::WithParamInterface<Harm> {};

TEST_P(FuzzDriverSees, AFaultAndKeepsItsInput) {
  const auto [word, reason] = GetParam();
  const auto ended = run(write("given", word));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr(reason));
  EXPECT_THAT(ended.output,
              HasSubstr("fuzz: its input has " + std::to_string(std::string(word).size()) + " bytes; again: "));
  EXPECT_EQ(kept(), word);
}

INSTANTIATE_TEST_SUITE_P(
    Each, FuzzDriverSees,
    testing::Values(Harm{"overrun", "heap-buffer-overflow"}, Harm{"throw", "it dies of SIGABRT"},
                    Harm{"check", "it dies of SIGABRT"}, Harm{"exit", "it ends with exit code 7"},
                    Harm{"endless", "it takes more than three seconds of processor time, or does not end"},
                    Harm{"memory", "it takes more than 128.0 MiB"}, Harm{"overflow", "signed integer overflow"}),
    [](const auto& info) { return std::string(info.param.word); });

TEST_F(FuzzDriver, SeesALeakAtTheEnd) {
  const auto ended = run(write("given", "leak"));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.output, HasSubstr("LeakSanitizer: detected memory leaks"));
  EXPECT_THAT(ended.output, HasSubstr("fuzz: faulty: FAULT after 1 runs of seed "));
}

}  // namespace
}  // namespace cohort::fuzz
