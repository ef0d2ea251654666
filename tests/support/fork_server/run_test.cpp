// cohort_run_test PROGRAM ARGUMENT ...: what PROGRAM does with these arguments, without loading it again (fork_server.h).
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "cohort/base/system/env.h"
#include "tests/support/fork_server/fork_server.h"

namespace {

using cohort::test::ServedProcess;

/// Nothing: the program is to be started as ever.
std::optional<ServedProcess> start(const std::vector<std::string>& arguments) {
  const bool lists = std::find(arguments.begin(), arguments.end(), "--gtest_list_tests") != arguments.end();
  if (lists || cohort::base::get_env("COHORT_TEST_FORK_SERVER") == "0") return {};
  const auto name = cohort::test::server_name(arguments.front());
  // A server may end while we ask it.
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto process = ServedProcess::start(name, {.arguments = arguments, .environment = cohort::base::environment()});
    if (process) return std::move(*process);
    if (!cohort::test::start_server(name, arguments.front())) break;
  }
  return {};
}

/// As it ended, so that whoever started us sees the same.
int end_like(const cohort::base::ExitStatus& status) {
  if (status.signal == 0) return status.code;
  const rlimit no_core = {};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(status.signal, SIG_DFL);
  ::raise(status.signal);
  return 128 + status.signal;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: cohort_run_test PROGRAM [ARGUMENT ...]\n";
    return 2;
  }
  if (auto process = start({argv + 1, argv + argc})) return end_like(process->wait());
  ::execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 127;
}
