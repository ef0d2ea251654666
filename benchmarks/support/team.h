/// Team: the ranks of one job, which run one command at a time. Between commands its ranks sleep, so that several teams can use
/// the cores in turn.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/base/process/process.h"

namespace cohort::bench {

/// A folder for pipes and stores, which is removed with its content.
class ScratchFolder {
 public:
  ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TeamOptions {
  /// Used in names of files in the folder.
  std::string name;
  std::string folder;
  int num_ranks = 2;
  /// Program and first arguments; each rank also gets its rank, the named pipe that commands come from, and an init method.
  std::vector<std::string> command;
  /// A program that starts all ranks itself, like mpirun. It gets one more argument, PIPES: rank r reads commands from
  /// PIPES-commands-r and answers to PIPES-answers-r.
  bool is_launcher = false;
  /// Added to this process's environment.
  std::map<std::string, std::string> environment = {};
};

/// A rank reads commands, one per line, and answers each with a line that begins with "= " on standard output; it ends at "quit".
/// Other output is ignored. All methods throw std::runtime_error if a rank ends early or is silent for minutes.
class Team {
 public:
  explicit Team(const TeamOptions& options);
  Team(Team&&) = default;
  /// Tells the ranks to quit and waits for them.
  ~Team();

  /// Sends the command to every rank. Returns their answers without the "= ", by rank. Blocks.
  std::vector<std::string> ask(const std::string& command);
  /// Returns the largest of the ranks' answers, as a number.
  double ask_number(const std::string& command);

 private:
  struct Rank {
    size_t process = 0;
    base::Fd commands;
    base::Fd answers;
    std::string unread;
  };
  void start_ranks(const TeamOptions& options);
  void start_launcher(const TeamOptions& options);
  std::string read_answer(size_t rank, const std::string& command);

  std::string name_;
  std::vector<base::Process> processes_;
  std::vector<Rank> ranks_;
};

/// Runs a program to its end and returns the seconds. Throws std::runtime_error, with its error output, if it fails.
double time_program(const std::vector<std::string>& arguments);

}  // namespace cohort::bench
