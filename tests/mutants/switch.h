/// The switch of a mutant. `make mutants` (tools/dev/mutants.py) puts it into a copy of the sources; no product has it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

/// Whether this process runs as the mutant `name`. The first time it does, it leaves a file: the tests have come by here.
inline bool cohort_mutant(const char* name) {
  static const char* const chosen = std::getenv("COHORT_MUTANT");
  if (!chosen || std::strcmp(chosen, name) != 0) return false;
  static const int reached = [] {
    const char* const path = std::getenv("COHORT_MUTANT_REACHED");
    const int file = path ? ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    return file >= 0 ? ::close(file) : -1;
  }();
  static_cast<void>(reached);
  return true;
}
