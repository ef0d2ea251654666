/// RunConfig: options of a program, set by a TOML file and by flags.
///
///     int64_t epochs = 5;
///     double rate = 0.01;
///     cohort::train::RunConfig config("train", "Trains a classifier.");
///     config.add("epochs", epochs, "passes over the data", {.min = 1});
///     config.add("optimizer.lr", rate, "learning rate", {.above = 0});
///     config.parse_or_exit(argc, argv);
///
///     $ train --config run.toml --epochs 10 --optimizer.lr=0.1
///
/// Every option has a name, which is its flag (--epochs) and its key in the file; "optimizer.lr" is the key lr of [optimizer].
/// The file (--config FILE) overrides defaults, and flags override the file. If a flag is given twice, the last one counts. Flags
/// take "-" and "_" alike; bools also have --no-NAME. --help lists the options with their current defaults.
///
/// Unknown names and values of the wrong kind are errors that name the place ("run.toml", line 3) and the nearest option.
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

/// Limits of an option; a value must satisfy all that are given. For numbers, and each number of a list: min, max, above and
/// below (excluding the bound itself). For texts: one of `choices`.
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

  /// Adds a heading to --help for the options that follow.
  void section(const std::string& title);
  /// Adds an option. The variable holds the default, gets the value, and must outlive parse(). Names have letters, digits, "-",
  /// "_" and ".". Throws c10::ValueError for other names, for a name that exists already, and for "help" and "config".
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

  /// Parses arguments without the program's name. Throws c10::ValueError with the text for the user; some variables may then be
  /// set.
  Outcome parse(const std::vector<std::string>& arguments);
  /// Parses the arguments of main(). --help prints to stdout and exits with 0; an error prints to stderr and exits with 2. Only
  /// rank 0 of a job (RANK) prints; every rank tells the launcher about an error.
  void parse_or_exit(int argc, const char* const* argv);
  /// Reports an error that ends main(): prints "PROGRAM: error: ..." to stderr, and tells the launcher, which does not restart
  /// workers a third time after an error that will recur, such as a c10::ValueError. Returns the exit code, 1.
  int report(const std::exception& error) const;

  std::string help() const;
  /// Whether the file or a flag set the option. Throws c10::ValueError for a name that was not added.
  bool was_given(const std::string& name) const;
  /// Returns every option with its current value, as a file for --config.
  std::string to_toml() const;
  /// Writes to_toml() to a file that only its owner may read. Replaces the file, and makes the folders above it.
  void save(const std::string& path) const;
  /// Returns the values for Logger::log_hyperparameters; lists become texts.
  Hyperparameters values() const;

 private:
  struct Options;
  std::unique_ptr<Options> options_;
};

}  // namespace cohort::train
