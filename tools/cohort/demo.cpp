// cohort demo: trains the small GPT of examples/08_train_gpt.cpp on two ranks, in about a minute.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/process/process.h"
#include "cohort/elastic/plan/packaged_python.h"
#include "tools/cohort/commands.h"

namespace cohort::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHelp =
    "usage: cohort demo [arguments of train_gpt]\n\n"
    "Trains a small GPT on the C++ headers of LibTorch, with two ranks on this host, in about a minute. Short for\n\n"
    "  cohort run --standalone --nproc-per-node 2 train_gpt --steps 300 ...\n\n"
    "Checkpoints go to a temporary folder, which is removed at the end; --checkpoint FOLDER keeps them. Arguments are\n"
    "train_gpt's, such as --steps 50; train_gpt --help lists them.\n";

// The arguments of train_gpt, unless the user gives others.
constexpr std::pair<const char*, const char*> kShort[] = {{"--steps", "300"},
                                                          {"--warmup", "30"},
                                                          {"--eval-every", "0"},
                                                          {"--eval-windows", "256"},
                                                          {"--sample-bytes", "200"}};

// Looks in the build folder, beside the launcher, and in the Python package.
std::optional<std::string> find_train_gpt(const fs::path& self) {
  const fs::path bin = self.parent_path();
  for (const fs::path& place : {bin / "examples", bin}) {
    if (std::string program = place / "train_gpt"; base::find_program(program)) return program;
  }
  return elastic::packaged_program(self, "train_gpt");
}

bool names(const std::vector<std::string>& arguments, const std::string& flag) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const std::string& argument) { return argument == flag || argument.starts_with(flag + "="); });
}

// Returns the folder of LibTorch's headers, the text for training, in the package of train_gpt. Outside of a package train_gpt
// knows the folder of the machine that built it.
std::optional<std::string> text_beside(const std::string& train_gpt) {
  const fs::path include = fs::path(train_gpt).parent_path() / "../../torch/include";
  std::error_code error;
  const fs::path real = fs::canonical(include, error);
  if (error) return std::nullopt;
  return real.string();
}

// A folder that is removed with its content.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string pattern = fs::temp_directory_path(error) / "cohort-demo-XXXXXX";
    if (!error && ::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }  // empty if it could not be created

 private:
  std::string path_;
};

int train(const std::string& train_gpt, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"--standalone", "--nproc-per-node", "2", train_gpt};
  for (const auto& [flag, value] : kShort) {
    if (!names(arguments, flag)) command.insert(command.end(), {flag, value});
  }
  if (const auto text = text_beside(train_gpt); text && !names(arguments, "--data")) {
    command.insert(command.end(), {"--data", *text});
  }
  std::optional<TemporaryFolder> folder;
  if (!names(arguments, "--checkpoint")) {
    folder.emplace();
    if (folder->path().empty()) {
      base::log_error("there is no folder for temporary files\n  hint: set TMPDIR to one, or give --checkpoint FOLDER");
      return 1;
    }
    command.insert(command.end(), {"--checkpoint", folder->path() + "/train_gpt"});
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  const int code = run_command(command);
  if (folder) {
    (void)base::write_all(STDOUT_FILENO, "cohort demo removes them; --checkpoint FOLDER keeps them\n");
  }
  return code;
}

}  // namespace

int demo_command(const std::vector<std::string>& arguments) {
  if (names(arguments, "--help") || names(arguments, "-h")) {
    (void)base::write_all(STDOUT_FILENO, kHelp);
    return 0;
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const std::optional<std::string> train_gpt = find_train_gpt(self);
  if (!train_gpt) {
    base::log_error(
        fmt::format("cohort demo needs the program train_gpt, which was not installed with {}\n  hint: run make demo "
                    "in Cohort's source, or install the wheel that make wheel builds",
                    self.string()));
    return 1;
  }
  return train(*train_gpt, arguments);
}

}  // namespace cohort::cli
