/// RunConfig: what a program can be told: by a TOML file, by flags, or neither.
///
///     int64_t epochs = 5;
///     double rate = 0.01;
///     cohort::train::RunConfig config("train", "Trains a classifier.");
///     config.add("epochs", epochs, "passes over the data", {.min = 1});
///     config.add("optimizer.lr", rate, "learning rate", {.above = 0});
///     config.parse_or_exit(argc, argv);
///
///     train --config run.toml --epochs 10 --optimizer.lr=0.1
///
/// Every option has a name, which is its flag (--epochs) and its key in the file; "optimizer.lr" is the key lr of [optimizer].
/// The file (--config FILE) changes defaults, flags change the file. Of a flag given twice the last counts. Flags take "-" and
/// "_" alike; bools also --no-NAME. --help lists the options with their present defaults.
///
/// Unknown names and values of the wrong kind are errors that say where ("run.toml", line 3) and name the nearest option.
/// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/logging/logger.h"

namespace cohort::train {

/// What a value must be; all that is given holds together. For numbers and for each number of a list: min, max, above and below
/// (the bound itself excluded). For texts: one of `choices`.
struct OptionLimits {
  std::optional<double> min = {};
  std::optional<double> above = {};
  std::optional<double> max = {};
  std::optional<double> below = {};
  std::vector<std::string> choices = {};
};

class COHORT_API RunConfig {
 public:
  enum class Outcome {
    kRun,
    kHelp,  ///< --help was given: print help() and end
  };

  RunConfig(std::string program, std::string description);
  ~RunConfig();
  RunConfig(const RunConfig&) = delete;
  RunConfig& operator=(const RunConfig&) = delete;

  /// Lines of --help before the options that follow.
  void section(const std::string& title);
  /// The variable holds the default and gets the value; it must outlive parse(). Names: letters, digits, "-", "_" and "."; c10::
  /// ValueError for others, for a name that is there already, and for "help" and "config".
  void add(const std::string& name, bool& value, const std::string& help);
  void add(const std::string& name, int64_t& value, const std::string& help, const OptionLimits& limits = {});
  void add(const std::string& name, int& value, const std::string& help, const OptionLimits& limits = {});
  void add(const std::string& name, double& value, const std::string& help, const OptionLimits& limits = {});
  void add(const std::string& name, std::string& value, const std::string& help, const OptionLimits& limits = {});
  void add(const std::string& name, std::vector<int64_t>& value, const std::string& help,
           const OptionLimits& limits = {});
  void add(const std::string& name, std::vector<double>& value, const std::string& help,
           const OptionLimits& limits = {});
  void add(const std::string& name, std::vector<std::string>& value, const std::string& help,
           const OptionLimits& limits = {});

  /// Without the program's name. c10::ValueError with the text for the user; variables may be partly set then.
  Outcome parse(const std::vector<std::string>& arguments);
  /// As main() gets them. --help prints to stdout and ends with 0; an error prints to stderr and ends with 2. Of a
  /// job's ranks (RANK) only 0 prints; every rank tells the launcher of an error.
  void parse_or_exit(int argc, const char* const* argv);
  /// What has ended main(): prints "PROGRAM: error: ..." to stderr, and tells the launcher, which starts workers no third time
  /// whose error cannot change, such as a c10::ValueError. Returns: the exit code, 1.
  int report(const std::exception& error) const;

  std::string help() const;
  /// Whether file or flags gave it. c10::ValueError for a name that was not added.
  bool was_given(const std::string& name) const;
  /// Every option with its present value, as a file that --config takes.
  std::string to_toml() const;
  /// Replaces the file, which only its owner may read; folders above it are made.
  void save(const std::string& path) const;
  /// For Logger::log_hyperparameters; lists as texts.
  Hyperparameters values() const;

 private:
  struct Options;
  std::unique_ptr<Options> options_;
};

}  // namespace cohort::train
