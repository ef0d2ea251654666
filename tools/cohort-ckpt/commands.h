/// The commands of cohort-ckpt, a source file each. Every one prints to standard output, errors to standard error, and returns
/// the exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::ckpt_cli {

/// Something is wrong with a file; for diff: the files differ.
inline constexpr int kFault = 1;
/// The command line cannot be understood; for diff: a file cannot be read.
inline constexpr int kUsageError = 2;

struct ReadFlags {
  std::vector<std::string> paths;
  bool json = false;
};
int list_command(const ReadFlags& flags);
int verify_command(const ReadFlags& flags);

struct ShowFlags {
  std::string path;
  /// Of tensors or values; empty: every value.
  std::vector<std::string> names;
  /// How many elements of each tensor are printed.
  int64_t elements = 0;
  bool json = false;
};
int show_command(const ShowFlags& flags);

struct DiffFlags {
  std::string first;
  std::string second;
  /// Differences of elements up to this are none.
  double tolerance = 0;
  bool json = false;
};
int diff_command(const DiffFlags& flags);

struct ConvertFlags {
  /// One or more; convert and consolidate take one.
  std::vector<std::string> from;
  std::string to;
  /// torch.distributed.checkpoint's format where `to` is a folder.
  bool dcp = false;
  bool force = false;
};
int convert_command(const ConvertFlags& flags);
int average_command(const ConvertFlags& flags);
int consolidate_command(const ConvertFlags& flags);

}  // namespace cohort::ckpt_cli
