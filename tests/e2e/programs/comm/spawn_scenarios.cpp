// Started by spawn_parity_test.py, which does the same with torch.multiprocessing and compares what both print.
#include <cohort/comm/process/spawn.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>

namespace {

using std::chrono::milliseconds;
using Limit = std::optional<milliseconds>;

std::filesystem::path folder;

void touch(const std::string& name) { std::ofstream(folder / name); }
void wait_for(const std::string& name) {
  while (!std::filesystem::exists(folder / name)) usleep(1000);
}
void pause_for_ever() {
  while (true) pause();
}

std::string in_words(cohort::ProcessContext& context, const std::function<bool()>& join) {
  try {
    return join() ? "True" : "False";
  } catch (const cohort::ProcessExitedError& error) {
    return "ProcessExitedException | " + std::string(error.what()) + " | " + std::to_string(error.error_index) + " | " +
           (error.error_pid == context.pids()[error.error_index] ? "its pid | " : "another pid | ") +
           std::to_string(error.exit_code) + " | " + (error.signal_name.empty() ? "None" : error.signal_name);
  } catch (const cohort::ProcessRaisedError& error) {
    const std::string text = error.what();
    // Python goes on with a traceback.
    return "ProcessRaisedException | " + text.substr(2, text.find('\n', 2) - 2) + " | " +
           text.substr(text.rfind('\n') + 1) + " | " + std::to_string(error.error_index);
  }
}

// Joins until all is done, and says each result.
void join_all(const std::string& name, cohort::ProcessContext& context, Limit grace = {}) {
  std::string last;
  while (last != "True") {
    last = in_words(context, [&] { return context.join({}, grace); });
    // How many ends one call sees is chance.
    if (last != "False") std::cout << name << ": " << last << "\n" << std::flush;
  }
}

void run(const std::string& name, const std::function<void(int)>& fn, int nprocs, Limit grace = {}) {
  auto context = cohort::spawn(fn, nprocs, /*join=*/false);
  join_all(name, context, grace);
}

void one_by_one() {
  auto context = cohort::spawn([](int rank) { wait_for("go" + std::to_string(rank)); }, 2, false);
  const auto say = [&](Limit timeout) {
    std::cout << "one by one: " << in_words(context, [&] { return context.join(timeout); }) << "\n" << std::flush;
  };
  std::cout << "one by one: " << context.pids().size() << " pids\n" << std::flush;
  say(milliseconds(0));
  say(milliseconds(20));
  touch("go0");
  say({});
  say(milliseconds(20));
  touch("go1");
  say({});
  say(milliseconds(0));
}

void stubborn(int rank) {
  if (rank == 1) {
    wait_for("deaf");
    _exit(4);
  }
  signal(SIGTERM, SIG_IGN);
  touch("deaf");
  pause_for_ever();
}

// Ends by itself when it sees the other one gone.
void polite(int rank) {
  if (rank == 1) _exit(5);
  wait_for("polite");
}

}  // namespace

int main(int, char** argv) {
  folder = argv[1];
  one_by_one();
  run(
      "exit code", [](int rank) { rank == 1 ? _exit(3) : pause_for_ever(); }, 3);
  run(
      "signal", [](int rank) { rank == 0 ? void(raise(SIGKILL)) : pause_for_ever(); }, 2);
  run(
      "unknown signal", [](int) { raise(40); }, 1);
  run(
      "first real-time signal", [](int) { raise(SIGRTMIN); }, 1);
  run(
      "raised", [](int rank) { rank == 0 ? throw std::runtime_error("no more data") : pause_for_ever(); }, 2);
  run("stubborn", stubborn, 2, milliseconds(300));
  touch("polite");
  run("polite", polite, 2, milliseconds(20000));
  run(
      "no grace", [](int rank) { rank == 1 ? _exit(6) : pause_for_ever(); }, 2, milliseconds(0));
  return 0;
}
