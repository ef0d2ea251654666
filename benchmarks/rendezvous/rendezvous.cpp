// rendezvous: the time in which N agents meet, and meet again after a failure, through one store. Teams take turns.
#include <chrono>
#include <filesystem>
#include <memory>
#include <sstream>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turn_order.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"

namespace cohort::bench {
namespace {

struct Meeting {
  std::vector<double> first;
  std::vector<double> again;
};

void measure_meetings(Team& team, int num_nodes, Meeting* meeting) {
  std::istringstream answer(team.ask("meet " + std::to_string(num_nodes)).front());
  double first = 0;
  double again = 0;
  if (!(answer >> first >> again)) throw std::runtime_error("the nodes did not meet: " + answer.str());
  meeting->first.push_back(first);
  meeting->again.push_back(again);
}

Row make_row(const std::string& name, int num_nodes, const std::vector<double>& ours,
             const std::vector<double>& rival) {
  Row row;
  if (!rival.empty()) {
    row = compare_times(ours, rival);
  } else {
    row.ours = median(ours);
    row.note = num_nodes > 10
                   ? "takes more than a minute with 100 nodes (measured without --quick), much longer with 1,000"
                   : "PyTorch is not installed";
  }
  row.case_name = name + "/nodes=" + std::to_string(num_nodes);
  row.rival_name = "torchrun's dynamic rendezvous";
  row.unit = "ms";
  return row;
}

}  // namespace

std::vector<Row> run_rendezvous(const Settings& settings) {
  const ScratchFolder folder;
  Team ours({.name = "ours",
             .folder = folder.path(),
             .num_ranks = 1,
             .command = {settings.program_folder + "/cohort-bench-rendezvous-nodes"}});
  const auto python = find_python();
  std::unique_ptr<Team> rival;
  if (!python.empty()) {
    rival = std::make_unique<Team>(
        TeamOptions{.name = "torchrun",
                    .folder = folder.path(),
                    .num_ranks = 1,
                    .command = {python, std::string(kSourceDir) + "/benchmarks/rendezvous/rendezvous_nodes.py"}});
  }
  struct Case {
    int num_nodes, num_rounds, num_quick_rounds;
    bool has_rival;
  };
  std::vector<Row> rows;
  for (const auto& [num_nodes, num_rounds, num_quick_rounds, has_rival] :
       {Case{10, 8, 2, true}, Case{100, 3, 1, !settings.is_quick}, Case{1000, 3, 1, false}}) {
    Meeting our_times, their_times;
    TurnOrder order(has_rival && rival ? 2 : 1);
    for (int round = 0; round < settings.rounds(num_rounds, num_quick_rounds); ++round) {
      for (const size_t side : order.next()) {
        measure_meetings(side == 0 ? ours : *rival, num_nodes, side == 0 ? &our_times : &their_times);
      }
    }
    rows.push_back(make_row("meet", num_nodes, our_times.first, their_times.first));
    rows.push_back(make_row("meet-again", num_nodes, our_times.again, their_times.again));
  }
  return rows;
}

}  // namespace cohort::bench
