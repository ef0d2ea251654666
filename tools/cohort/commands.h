/// The subcommands of `cohort`: one row each, one source file each.
#pragma once

#include <string>
#include <vector>

namespace cohort::cli {

struct Command {
  const char* name;
  const char* summary;
  /// Gets the arguments after the subcommand's name and returns the exit code.
  int (*run)(const std::vector<std::string>& arguments);
};

/// Exit code for a command line that cannot be understood, as argparse's.
inline constexpr int kUsageError = 2;

int run_command(const std::vector<std::string>& arguments);
int launch_command(const std::vector<std::string>& arguments);
int store_command(const std::vector<std::string>& arguments);
int demo_command(const std::vector<std::string>& arguments);
int ckpt_command(const std::vector<std::string>& arguments);

}  // namespace cohort::cli
