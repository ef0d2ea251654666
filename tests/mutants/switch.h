/// The switch of a mutant. `make mutants` (tools/dev/mutants.py and sample_mutants.py) puts it into a copy of the sources; no
/// product has it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

/// The generated mutant that this process runs as; 0: none.
inline const int cohort_chosen_mutant = [] {
  const char* const text = std::getenv("COHORT_MUTANT");
  return text ? std::atoi(text) : 0;
}();

/// The file in which all processes of a test note the mutants that they come by, a byte for each; none: null.
inline unsigned char* const cohort_reached_mutants = []() -> unsigned char* {
  const char* const path = std::getenv("COHORT_MUTANT_REACHED");
  const int file = path ? ::open(path, O_RDWR | O_CLOEXEC) : -1;
  struct stat status {};
  const bool has_bytes = file >= 0 && ::fstat(file, &status) == 0 && status.st_size > 0;
  const auto size = static_cast<size_t>(status.st_size);
  void* const bytes = has_bytes ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (file >= 0) ::close(file);
  return bytes == MAP_FAILED ? nullptr : static_cast<unsigned char*>(bytes);
}();

/// Whether this process runs as the generated mutant `number`.
inline bool cohort_mutant(int number) {
  if (cohort_reached_mutants) cohort_reached_mutants[number] = 1;
  return number == cohort_chosen_mutant;
}
