#include "tools/cohort/config_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cohort/base/file/atomic_file.h"
#include "tests/support/temporary_folder.h"

namespace cohort::cli {
namespace {

const std::vector<Flag> kConfigFlags = {
    {"--nproc-per-node", true}, {"--rdzv-conf", true}, {"--standalone", false}, {"-t", true}};

class ConfigFile : public testing::Test {
 protected:
  base::Result<std::vector<GivenFlag>> read(const std::string& text) {
    EXPECT_TRUE(base::write_file_atomically(path_, text));
    return flags_from_file(path_, kConfigFlags);
  }
  std::string error_of(const std::string& text) { return read(text).error().describe(); }

  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "job.toml";
};

TEST_F(ConfigFile, EntriesAreFlags) {
  EXPECT_EQ(read("# a comment\nnproc_per_node = 2\nrdzv-conf = \"a=1,b=2\"\nstandalone = true\n").value(),
            (std::vector<GivenFlag>{{"--nproc-per-node", "2"}, {"--rdzv-conf", "a=1,b=2"}, {"--standalone"}}));
  EXPECT_EQ(read("standalone = false\n").value(), std::vector<GivenFlag>());
}

TEST_F(ConfigFile, ErrorsMessage) {
  const std::string head = "--config=" + path_ + " cannot be used\n  caused by: ";
  EXPECT_EQ(error_of("nproc-per-nod = 2\n"), head + "unknown flag nproc-per-nod (did you mean \"nproc-per-node\"?)");
  EXPECT_EQ(error_of("standalone = 7\n"), head + "standalone must be true or false");
  EXPECT_EQ(error_of("[run]\nnproc-per-node = 2\n"), head + "it has sections, which are not supported here");
}

TEST_F(ConfigFile, MissingFileMessage) {
  EXPECT_EQ(flags_from_file("/no/such.toml", kConfigFlags).error().describe(),
            "--config=/no/such.toml cannot be used\n  caused by: cannot open \"/no/such.toml\": No such file or "
            "directory (ENOENT)");
}

TEST_F(ConfigFile, NoRegularFileMessages) {
  EXPECT_EQ(flags_from_file("/dev/zero", kConfigFlags).error().describe(),
            "--config=/dev/zero cannot be used\n  caused by: cannot open \"/dev/zero\": it is not a regular file");
  const std::string pipe = path_ + ".pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(
      flags_from_file(pipe, kConfigFlags).error().describe(),
      "--config=" + pipe + " cannot be used\n  caused by: cannot open \"" + pipe + "\": it is not a regular file");
  ASSERT_EQ(::unlink(pipe.c_str()), 0);
}

TEST_F(ConfigFile, FileThatIsTooLongMessage) {
  const std::string text(65 * 1024, '#');
  EXPECT_EQ(error_of(text),
            "--config=" + path_ + " cannot be used\n  caused by: \"" + path_ + "\" has more than 64.0 KiB");
}

}  // namespace
}  // namespace cohort::cli
