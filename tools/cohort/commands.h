/// The subcommands of `cohort`: one row each, one source file each.
#pragma once

#include <string>
#include <vector>

namespace cohort::cli {

struct Command {
  const char* name;
  const char* summary;
  /// Runs the subcommand with the arguments after its name and returns the exit code.
  int (*run)(const std::vector<std::string>& arguments);
};

/// Exit code for an invalid command line, as in argparse.
inline constexpr int kUsageError = 2;

int run_command(const std::vector<std::string>& arguments);
int launch_command(const std::vector<std::string>& arguments);
int store_command(const std::vector<std::string>& arguments);
int demo_command(const std::vector<std::string>& arguments);
int ckpt_command(const std::vector<std::string>& arguments);

}  // namespace cohort::cli
