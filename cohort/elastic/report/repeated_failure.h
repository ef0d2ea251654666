/// RepeatedFailure: detects an error that the same program will have again, such as a wrong flag. Private to this folder.
#pragma once

#include <chrono>
#include <string>

#include "cohort/elastic/report/failure_report.h"

namespace cohort::elastic {

/// Whether the kind of the error says that the program was called wrongly, not that something happened to it: ValueError,
/// TypeError, ImportError and similar ones, of C++ or Python; or exit code 2, with which programs refuse their arguments. Pure.
bool is_of_the_program(const WorkerFailure& failure);

class RepeatedFailure {
 public:
  /// Takes a round's first failure, `age` after its workers were started. Returns true if it is an error of the program, came as
  /// early as the last round's, and has the same text.
  bool is_it(const WorkerFailure& failure, std::chrono::steady_clock::duration age);

 private:
  /// Empty if the last failure was not of this kind.
  std::string last_;
};

}  // namespace cohort::elastic
