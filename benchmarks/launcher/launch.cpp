// launch: from the launcher's command line to the end of workers that do nothing, rendezvous and logs on, and the memory an agent
// takes. Launchers alternate.
#include <fmt/core.h>

#include <csignal>
#include <thread>

#include "benchmarks/launcher/launchers.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "cohort/base/text.h"

namespace cohort::bench {
namespace {

std::vector<std::string> with(std::vector<std::string> flags, const std::vector<std::string>& words) {
  flags.insert(flags.end(), words.begin(), words.end());
  return flags;
}

Row measure_start(const Settings& settings, int num_workers) {
  const ScratchFolder folder;
  const auto flags = [&] { return with(one_node_flags(num_workers, folder.path()), {"--no-python", "true"}); };
  const bool has_rival = !torchrun({}).empty();
  time_program(our_launcher(settings, flags()));  // afterwards programs and libraries come from the page cache
  if (has_rival) time_program(torchrun(flags()));
  std::vector<double> our_times, their_times;
  for (int round = 0; round < settings.rounds(20, 4); ++round) {
    our_times.push_back(time_program(our_launcher(settings, flags())) * 1e3);
    if (has_rival) their_times.push_back(time_program(torchrun(flags())) * 1e3);
  }
  Row row;
  if (has_rival) row = compare_times(our_times, their_times);
  if (!has_rival) row.ours = median(our_times);
  row.case_name = fmt::format("start/workers={}", num_workers);
  row.unit = "ms";
  return row;
}

/// The most memory, in MiB, that an agent has held when its workers have run for a moment.
double memory_of(const std::vector<std::string>& launcher) {
  base::Process process =
      base::Process::start(
          {.arguments = launcher, .standard_output = base::Stream::pipe(), .standard_error = base::Stream::null()})
          .value();  // it is ended by a signal, and says so
  char byte = 0;
  if (::read(process.standard_output().get(), &byte, 1) != 1) throw std::runtime_error("a launcher has no workers");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const std::string status = base::read_file("/proc/" + std::to_string(process.pid()) + "/status").value();
  const size_t at = status.find("VmHWM:");
  const auto kib = base::parse_int(base::trim(status.substr(at + 6, status.find("kB", at) - at - 6)));
  process.signal(SIGTERM);
  process.wait();
  return static_cast<double>(kib.value()) / 1024;
}

Row measure_memory(const Settings& settings) {
  const std::vector<std::string> words = {
      "--nnodes=1:1", "--nproc-per-node=2", "--standalone", "--no-python", "sh", "-c", "echo started; exec sleep 1000"};
  Row row;
  row.ours = memory_of(our_launcher(settings, words));
  if (const auto rival = torchrun(words); !rival.empty()) {
    row.rival = memory_of(rival);
    row.ratio = *row.rival / *row.ours;
  }
  row.case_name = "agent-memory/workers=2";
  row.unit = "MiB";
  return row;
}

}  // namespace

std::vector<Row> run_launch(const Settings& settings) {
  std::vector<Row> rows = {measure_start(settings, 2), measure_start(settings, 16), measure_memory(settings)};
  for (Row& row : rows) row.rival_name = "torchrun";
  return rows;
}

}  // namespace cohort::bench
