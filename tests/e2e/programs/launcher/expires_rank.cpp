// A worker with a block that is watched: expires_rank SCOPE AFTER TAKES [SIGNAL]. The block may take
// AFTER seconds and takes TAKES; then it is left and the rank goes on for AFTERWARDS. Of several ranks, rank 0 only waits.
#include <c10/util/Exception.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "cohort/comm/process/expires.h"

namespace {

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::string variable(const char* name, const char* if_absent) {
  const char* const value = std::getenv(name);
  return value ? value : if_absent;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 2;
  const std::string rank = variable("RANK", "0");
  if (rank == "0" && variable("WORLD_SIZE", "1") != "1") {
    sleep_for(std::stod(argv[3]));
    return 0;
  }
  {
    const int signal = argc > 4 ? std::stoi(argv[4]) : SIGKILL;
    const cohort::Expires guard(std::chrono::duration<double>(std::stod(argv[2])), argv[1], signal);
    std::printf("rank %s is inside\n", rank.c_str());
    std::fflush(stdout);
    sleep_for(std::stod(argv[3]));
  }
  sleep_for(std::stod(variable("AFTERWARDS", "0")));
  std::printf("rank %s is done\n", rank.c_str());
  return 0;
} catch (const c10::Error& error) {
  std::printf("%s\n", error.what_without_backtrace());
  return 3;
}
