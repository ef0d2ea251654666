#include "benchmarks/launcher/agent_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "cohort/base/process/process.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

pid_t read_pid(const base::Fd& output) {
  std::string line;
  for (char letter = 0; ::read(output.get(), &letter, 1) == 1 && letter != '\n';) line.push_back(letter);
  return static_cast<pid_t>(base::parse_int(line).value_or(0));
}

// Processes that have just begun still grow.
bool becomes_true(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

TEST(LauncherMemory, IsThatOfTheWholeTreeWithoutWorkers) {
  // A launcher with a guard and a worker, which has a child.
  auto launcher = base::Process::start({.arguments = {"sh", "-c",
                                                      "sh -c 'echo $$; exec sleep 100' & "
                                                      "sh -c 'sleep 100 & echo $$; wait' & wait"},
                                        .environment = std::nullopt,
                                        .standard_output = base::Stream::pipe()});
  ASSERT_TRUE(launcher.ok());
  const pid_t one = read_pid(launcher->standard_output());
  const pid_t other = read_pid(launcher->standard_output());
  ASSERT_TRUE(one > 0 && other > 0);
  const pid_t top = launcher->pid();
  for (const auto& [guard, worker] : {std::pair{one, other}, std::pair{other, one}}) {
    EXPECT_TRUE(becomes_true([&, guard = guard, worker = worker] {
      const double alone = launcher_memory(top, {guard, worker});
      return alone > 0 && launcher_memory(guard, {}) > 0 && launcher_memory(worker, {}) > 0 &&
             launcher_memory(top, {worker}) == alone + launcher_memory(guard, {}) &&
             launcher_memory(top, {}) == alone + launcher_memory(guard, {}) + launcher_memory(worker, {});
    }));
  }
}

TEST(LauncherMemory, IsNoFigureOfALauncherThatHasEnded) {
  auto process = base::Process::start({.arguments = {"true"}});
  ASSERT_TRUE(process.ok());
  process->wait();
  EXPECT_THROW(launcher_memory(process->pid(), {}), std::runtime_error);
}

}  // namespace
}  // namespace cohort::bench
