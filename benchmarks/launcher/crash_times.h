/// The output of the C++ workers of `recovery`: one line per event, with the time of the machine's clock.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <string>

namespace cohort::bench {

inline void write_time(const char* path, const char* what) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const std::string line = std::string(what) + " " + std::to_string(now.tv_sec * 1'000'000'000LL + now.tv_nsec) + "\n";
  const int fd = ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  (void)!::write(fd, line.data(), line.size());
  ::close(fd);
}

inline bool is_first_attempt() { return std::string(std::getenv("TORCHELASTIC_RESTART_COUNT")) == "0"; }
inline bool is_rank(const char* rank) { return std::string(std::getenv("RANK")) == rank; }

}  // namespace cohort::bench
