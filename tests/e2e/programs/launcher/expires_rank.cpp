// A worker with a block that is watched, built without LibTorch: expires_rank SCOPE AFTER TAKES [SIGNAL]. The block may take
// AFTER seconds and takes TAKES; then it is left and the rank goes on for AFTERWARDS. Of several ranks, rank 0 only waits.
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include "cohort/base/env.h"
#include "cohort/comm/process/expires.h"

namespace {

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) return 2;
  const std::string rank = cohort::base::get_env("RANK").value_or("0");
  if (rank == "0" && cohort::base::get_env("WORLD_SIZE").value_or("1") != "1") {
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
  sleep_for(std::stod(cohort::base::get_env("AFTERWARDS").value_or("0")));
  std::printf("rank %s is done\n", rank.c_str());
  return 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 3;
}
