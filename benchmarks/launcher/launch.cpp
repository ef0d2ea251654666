// launch: the time from starting the launcher to the end of workers that do nothing, with rendezvous and logs, and the memory of
// the launcher.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <thread>

#include "benchmarks/launcher/agent_memory.h"
#include "benchmarks/launcher/launchers.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

constexpr size_t kMemoryWorkers = 2;
constexpr int kStartMilliseconds = 60'000;

std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& words) {
  flags.insert(flags.end(), words.begin(), words.end());
  return flags;
}

std::vector<Row> measure_start(const Settings& settings, int num_workers) {
  const ScratchFolder folder;
  const auto flags = [&] { return with(one_node_flags(num_workers, folder.path()), {"--no-python", "true"}); };
  return compare_launchers({.name = fmt::format("start/workers={}", num_workers),
                            .unit = "ms",
                            .ours = [&] { return time_program(our_launcher(settings, flags())) * 1e3; },
                            .rivals = {{"torchrun", [&] { return time_program(torchrun(flags())) * 1e3; }}}},
                           settings.rounds(20, 4),
                           /*warms_up=*/true);  // puts programs and libraries into the page cache
}

// Returns the workers, each of which has written its pid in a line.
std::set<pid_t> read_workers(const base::Fd& output) {
  std::set<pid_t> workers;
  std::string line;
  for (char letter = 0; workers.size() < kMemoryWorkers;) {
    pollfd entry{.fd = output.get(), .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, kStartMilliseconds) != 1 || ::read(output.get(), &letter, 1) != 1) {
      throw std::runtime_error("a launcher starts no workers");
    }
    if (letter != '\n') {
      line.push_back(letter);
      continue;
    }
    if (const auto pid = base::parse_int(line)) workers.insert(static_cast<pid_t>(*pid));
    line.clear();
  }
  return workers;
}

/// Returns the peak MiB of a launcher whose workers have run for a moment.
double memory_of(const std::vector<std::string>& launcher) {
  base::Process process =
      base::Process::start(
          {.arguments = launcher, .standard_output = base::Stream::pipe(), .standard_error = base::Stream::null()})
          .value();  // a signal ends it, which it reports
  const std::set<pid_t> workers = read_workers(process.standard_output());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double memory = launcher_memory(process.pid(), workers);
  process.signal(SIGTERM);
  process.wait();
  return memory;
}

std::vector<Row> measure_memory(const Settings& settings) {
  // `cut` writes its parent's pid, which is the worker's; torchrun would replace $$ by $.
  const std::vector<std::string> words = {
      "--nnodes=1:1", fmt::format("--nproc-per-node={}", kMemoryWorkers), "--standalone", "--no-python", "sh",
      "-c",           "cut -d' ' -f4 /proc/self/stat; exec sleep 1000"};
  return compare_launchers({.name = fmt::format("agent-memory/workers={}", kMemoryWorkers),
                            .unit = "MiB",
                            .ours = [&] { return memory_of(our_launcher(settings, words)); },
                            .rivals = {{"torchrun", [&] { return memory_of(torchrun(words)); }}}},
                           settings.rounds(6, 1), /*warms_up=*/false);
}

}  // namespace

std::vector<Row> run_launch(const Settings& settings) {
  std::vector<Row> rows;
  for (auto& some : {measure_start(settings, 2), measure_start(settings, 16), measure_memory(settings)}) {
    rows.insert(rows.end(), some.begin(), some.end());
  }
  return rows;
}

}  // namespace cohort::bench
