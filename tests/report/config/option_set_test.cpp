#include "cohort/report/config/option_set.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cohort/base/file/atomic_file.h"
#include "tests/support/temporary_folder.h"

namespace cohort::report {
namespace {

class Program {
 public:
  Program() {
    set.section("Training:");
    add("epochs", &epochs, "passes over the data", {.min = 1});
    add("amp", &amp, "mixed precision");
    add("name", &name, "of the run");
    set.section("Optimizer:");
    add("optimizer.lr", &rate, "learning rate", {.above = 0, .max = 10});
    add("optimizer.kind", &kind, "which one", {.choices = {"sgd", "adam"}});
    add("optimizer.milestones-of-the-rate", &milestones, "epochs after which the rate falls");
  }
  template <typename T>
  void add(const std::string& option, T* target, const std::string& help, const ValueLimits& limits = {}) {
    ASSERT_TRUE(set.add({.name = option, .target = target, .help = help, .limits = limits}).ok());
  }
  // "" for success.
  std::string parse(const std::vector<std::string>& arguments) {
    auto parsed = set.parse(arguments);
    if (!parsed) return parsed.error().describe();
    return *parsed ? "" : "help";
  }
  std::string parse_file(const std::string& text, std::vector<std::string> arguments = {}) {
    const test::TemporaryFolder folder;
    const std::string path = folder / "run.toml";
    EXPECT_TRUE(base::write_file_atomically(path, text).ok());
    arguments.insert(arguments.begin(), {"--config", path});
    const std::string error = parse(arguments);
    const size_t at = error.find(path);
    return at == std::string::npos ? error : error.substr(0, at) + "run.toml" + error.substr(at + path.size());
  }

  OptionSet set{"train", "Trains a classifier."};
  int64_t epochs = 5;
  bool amp = false;
  std::string name = "a";
  double rate = 0.01;
  std::string kind = "adam";
  std::vector<int64_t> milestones = {30, 60};
};

TEST(OptionSet, TakesFlags) {
  Program program;
  EXPECT_EQ(program.parse({"--epochs", "7", "--amp", "--name=x y", "--optimizer.lr=.5", "--optimizer.kind", "sgd",
                           "--optimizer.milestones_of_the_rate", "1,2"}),
            "");
  EXPECT_EQ(program.epochs, 7);
  EXPECT_TRUE(program.amp);
  EXPECT_EQ(program.name, "x y");
  EXPECT_EQ(program.rate, 0.5);
  EXPECT_EQ(program.kind, "sgd");
  EXPECT_EQ(program.milestones, (std::vector<int64_t>{1, 2}));
}

TEST(OptionSet, TheLastOfTwoFlagsCounts) {
  Program program;
  EXPECT_EQ(program.parse({"--amp", "--epochs", "7", "--no-amp", "--epochs", "8", "--name", "-1"}), "");
  EXPECT_EQ(program.epochs, 8);
  EXPECT_FALSE(program.amp);
  EXPECT_EQ(program.name, "-1");
  EXPECT_EQ(program.parse({"--amp=yes", "--optimizer.milestones-of-the-rate="}), "");
  EXPECT_TRUE(program.amp);
  EXPECT_TRUE(program.milestones.empty());
}

TEST(OptionSet, FlagsChangeTheFileAndTheFileChangesDefaults) {
  Program program;
  EXPECT_EQ(program.parse_file("epochs = 3\namp = true\n[optimizer]\nlr = 1\nmilestones_of_the_rate = [5]\n",
                               {"--epochs", "9"}),
            "");
  EXPECT_EQ(program.epochs, 9);
  EXPECT_TRUE(program.amp);
  EXPECT_EQ(program.rate, 1.0);
  EXPECT_EQ(program.kind, "adam");
  EXPECT_EQ(program.milestones, std::vector<int64_t>{5});
  EXPECT_TRUE(program.set.find("epochs")->is_given && program.set.find("optimizer.lr")->is_given);
  EXPECT_FALSE(program.set.find("name")->is_given);
}

TEST(OptionSet, SaysWhatIsWrongWithAFlag) {
  const auto error = [](const std::vector<std::string>& arguments) {
    Program program;
    const std::string text = program.parse(arguments);
    EXPECT_EQ(program.epochs, 5);
    return text;
  };
  const std::string hint = "\n  hint: --help lists the options";
  EXPECT_EQ(error({"--epochz", "3"}), "there is no option --epochz (did you mean \"--epochs\"?)" + hint);
  EXPECT_EQ(error({"--quite-other"}), "there is no option --quite-other" + hint);
  EXPECT_EQ(error({"epochs"}), "\"epochs\" is not an option; options begin with --" + hint);
  EXPECT_EQ(error({"--epochs"}), "--epochs lacks its value");
  EXPECT_EQ(error({"--epochs", "--amp"}), "--epochs lacks its value");
  EXPECT_EQ(error({"--epochs", "two"}), "--epochs \"two\": expected a whole number");
  EXPECT_EQ(error({"--epochs", "1.5"}), "--epochs \"1.5\": expected a whole number");
  EXPECT_EQ(error({"--epochs=0"}), "--epochs \"0\": must be at least 1");
  EXPECT_EQ(error({"--amp=perhaps"}), "--amp \"perhaps\": expected true or false");
  EXPECT_EQ(error({"--no-amp=true"}), "--no-amp takes no value");
  EXPECT_EQ(error({"--optimizer.lr", "nan"}), "--optimizer.lr \"nan\": must be above 0 and at most 10");
  EXPECT_EQ(error({"--optimizer.kind", "adan"}),
            "--optimizer.kind \"adan\": must be one of \"sgd\", \"adam\" (did you mean \"adam\"?)");
  EXPECT_EQ(error({"--optimizer.milestones-of-the-rate", "1,x"}),
            "--optimizer.milestones-of-the-rate \"1,x\": expected a whole number");
  EXPECT_EQ(error({"--config"}), "--config lacks its value, the name of a TOML file");
}

TEST(OptionSet, SaysWhatIsWrongWithTheFile) {
  Program program;
  EXPECT_EQ(
      program.parse_file("\nepochz = 3\n"),
      "\"run.toml\", line 2: there is no option epochz (did you mean \"epochs\"?)\n  hint: --help lists the options");
  EXPECT_EQ(program.parse_file("epochs = \"two\""), "\"run.toml\", line 1: epochs = \"two\": expected a whole number");
  EXPECT_EQ(program.parse_file("epochs = 0"), "\"run.toml\", line 1: epochs = 0: must be at least 1");
  EXPECT_EQ(program.parse_file("epochs = [1]"), "\"run.toml\", line 1: epochs = [1]: expected one value, not a list");
  EXPECT_EQ(program.parse_file("amp = 1"), "\"run.toml\", line 1: amp = 1: expected true or false");
  EXPECT_EQ(program.parse_file("name = 1"), "\"run.toml\", line 1: name = 1: expected a text in quotes");
  EXPECT_EQ(program.parse_file("optimizer.milestones-of-the-rate = 1"),
            "\"run.toml\", line 1: optimizer.milestones-of-the-rate = 1: expected a list, such as [1, 2]");
  EXPECT_EQ(program.parse_file("[optimizer]\nlr = -1"),
            "\"run.toml\", line 2: optimizer.lr = -1: must be above 0 and at most 10");
  EXPECT_EQ(program.parse({"--config", "/not/there.toml"}),
            "--config: the file cannot be read\n  caused by: cannot open \"/not/there.toml\": No such file or "
            "directory (ENOENT)");
}

TEST(OptionSet, HelpShowsDefaults) {
  Program program;
  EXPECT_EQ(program.parse({"--epochs", "x", "--help"}), "help");
  EXPECT_EQ(program.parse({"-h"}), "help");
  EXPECT_EQ(program.set.help(),
            "Trains a classifier.\n"
            "\n"
            "Usage: train [--config FILE] [OPTIONS]\n"
            "\n"
            "  --config FILE                 options from a TOML file; flags change what it says\n"
            "  --help                        shows this text\n"
            "\n"
            "Training:\n"
            "  --epochs WHOLE                passes over the data; at least 1 [5]\n"
            "  --[no-]amp                    mixed precision [false]\n"
            "  --name TEXT                   of the run [\"a\"]\n"
            "\n"
            "Optimizer:\n"
            "  --optimizer.lr NUMBER         learning rate; above 0 and at most 10 [0.01]\n"
            "  --optimizer.kind TEXT         which one; one of \"sgd\", \"adam\" [\"adam\"]\n"
            "  --optimizer.milestones-of-the-rate WHOLE,...\n"
            "                                epochs after which the rate falls [[30, 60]]\n");
}

TEST(OptionSet, ItsFileIsTakenBack) {
  Program program;
  EXPECT_EQ(program.parse({"--name", "a \"b\"\n", "--optimizer.lr", "2"}), "");
  const std::string toml = program.set.to_toml();
  EXPECT_EQ(toml,
            "epochs = 5  # passes over the data\n"
            "amp = false  # mixed precision\n"
            "name = \"a \\\"b\\\"\\n\"  # of the run\n"
            "\n"
            "[optimizer]\n"
            "lr = 2.0  # learning rate\n"
            "kind = \"adam\"  # which one\n"
            "milestones-of-the-rate = [30, 60]  # epochs after which the rate falls\n");
  Program again;
  EXPECT_EQ(again.parse_file(toml), "");
  EXPECT_EQ(again.set.to_toml(), toml);
}

TEST(OptionSet, RefusesNamesThatCannotBe) {
  Program program;
  bool flag = false;
  const auto error = [&](const std::string& name) {
    return program.set.add({.name = name, .target = &flag}).error().describe();
  };
  EXPECT_EQ(error("epochs"), "there is an option \"epochs\" already");
  EXPECT_EQ(error("config"), "there is an option \"config\" already");
  EXPECT_EQ(error("optimizer.milestones_of-the-rate"),
            "there is an option \"optimizer.milestones_of-the-rate\" already");
  EXPECT_EQ(error("no-amp"), "the options \"amp\" and \"no-amp\" would have one flag");
  EXPECT_EQ(error("a b"),
            "\"a b\" cannot be the name of an option: names are made of letters, digits, \"-\", \"_\" and \".\", and "
            "begin with a "
            "letter or digit");
}

TEST(OptionSet, GivesItsValuesToLoggers) {
  Program program;
  const HyperparameterList values = program.set.values();
  ASSERT_EQ(values.size(), 6U);
  EXPECT_EQ(values[0], (std::pair<std::string, HyperparameterValue>("epochs", int64_t{5})));
  EXPECT_EQ(values[1], (std::pair<std::string, HyperparameterValue>("amp", false)));
  EXPECT_EQ(values[5].second, HyperparameterValue(std::string("[30, 60]")));
}

}  // namespace
}  // namespace cohort::report
