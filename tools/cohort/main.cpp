// cohort: the launcher and its subcommands. Does not link LibTorch; tools that need it are separate programs named cohort-<name>,
// which are found beside this one or in PATH.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/base/file/open_file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/process/process.h"
#include "cohort/base/text/text.h"
#include "cohort/version.h"
#include "tools/cohort/commands.h"

namespace cohort::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "start a program as several ranks, as torchrun does", run_command},
    {"launch", "run for programs that expect a --local-rank argument, as torch.distributed.launch", launch_command},
    {"store", "run a store in which the processes of a job meet", store_command},
    {"demo", "train a small GPT on two ranks, in about a minute", demo_command},
    {"ckpt", "show, compare and convert files of tensors and checkpoints", ckpt_command},
};

std::string help_text() {
  std::string text = "usage: cohort COMMAND [arguments]\n\nDistributed training for LibTorch programs.\n\nCommands:\n";
  for (const Command& command : kCommands) text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  text +=
      "\nFlags:\n  -h, --help     show this text; cohort COMMAND --help shows a command's own\n"
      "  --version      show the version\n";
  return text;
}

/// Becomes `cohort-<name>` if there is such a program; otherwise returns.
void try_helper_program(const std::string& name, std::vector<std::string> arguments) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = "cohort-" + name;
  base::Result<std::string> path = base::find_program((self.parent_path() / program).string());
  if (!path) path = base::find_program(program);
  if (!path) return;
  arguments.insert(arguments.begin(), *path);
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  ::execv(path->c_str(), words.data());
}

int main_command(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    (void)base::write_all(STDERR_FILENO, help_text());
    return kUsageError;
  }
  const std::string& name = arguments.front();
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (name == "-h" || name == "--help" || name == "help") {
    (void)base::write_all(STDOUT_FILENO, help_text());
    return 0;
  }
  if (name == "--version" || name == "version") {
    (void)base::write_all(STDOUT_FILENO, "cohort " COHORT_VERSION "\n");
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(rest);
    names.push_back(command.name);
  }
  if (!name.starts_with('-')) try_helper_program(name, rest);
  base::log_error(fmt::format("\"{}\" is not a command of cohort{}\n  hint: cohort --help lists the commands", name,
                              base::did_you_mean(name, names)));
  return kUsageError;
}

}  // namespace

int ckpt_command(const std::vector<std::string>& arguments) {
  try_helper_program("ckpt", arguments);
  base::log_error(
      "cohort ckpt needs the program cohort-ckpt, which is neither beside cohort nor in PATH\n"
      "  hint: install both from one build of Cohort; a build without cohort/files has no cohort-ckpt");
  return 1;
}

}  // namespace cohort::cli

int main(int argc, char** argv) {
  cohort::base::open_standard_streams();
  return cohort::cli::main_command({argv + 1, argv + argc});
}
