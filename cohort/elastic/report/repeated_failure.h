/// RepeatedFailure: notices an error that the same program will run into again, such as a wrong flag. Private to this folder.
#pragma once

#include <chrono>
#include <string>

#include "cohort/elastic/report/failure_report.h"

namespace cohort::elastic {

/// Of a kind that says what the program was told, not what has happened to it: ValueError, TypeError, ImportError and their like,
/// of C++ or Python; or exit code 2, by which programs refuse their arguments. Pure.
bool is_of_the_program(const WorkerFailure& failure);

class RepeatedFailure {
 public:
  /// A round's first failure, `age` after its workers were started. True: it is of the program, as early as the last round's, and
  /// word for word the same.
  bool is_it(const WorkerFailure& failure, std::chrono::steady_clock::duration age);

 private:
  /// "" where it was no such failure.
  std::string last_;
};

}  // namespace cohort::elastic
