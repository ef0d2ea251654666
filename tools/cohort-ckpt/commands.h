/// The commands of cohort-ckpt, each in its own source file. Each prints to standard output, errors to standard error, and
/// returns the exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::ckpt_cli {

/// Exit code for a damaged file, or one that cannot be read; for diff: the files differ.
inline constexpr int kFault = 1;
/// Exit code for an invalid command line; for diff: a file cannot be read.
inline constexpr int kUsageError = 2;

struct ReadFlags {
  std::vector<std::string> paths;
  bool json = false;
};
int list_command(const ReadFlags& flags);
int verify_command(const ReadFlags& flags);

struct ShowFlags {
  std::string path;
  /// Names of tensors or values. Empty means every value.
  std::vector<std::string> names;
  /// The number of elements of each tensor to print.
  int64_t elements = 0;
  bool json = false;
};
int show_command(const ShowFlags& flags);

struct DiffFlags {
  std::string first;
  std::string second;
  /// The largest difference of elements that counts as equal.
  double tolerance = 0;
  bool json = false;
};
int diff_command(const DiffFlags& flags);

struct ConvertFlags {
  /// One or more; convert and consolidate take one.
  std::vector<std::string> from;
  std::string to;
  /// Whether to write torch.distributed.checkpoint's format if `to` is a folder.
  bool dcp = false;
  bool force = false;
};
int convert_command(const ConvertFlags& flags);
int average_command(const ConvertFlags& flags);
int consolidate_command(const ConvertFlags& flags);

}  // namespace cohort::ckpt_cli
