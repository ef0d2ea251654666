// queued: the cost of an asynchronous operation (async_op, batch_isend_irecv) that is waited for later, beside the same one
// called synchronously. Idle: nothing happens between starting and waiting. Beside load: each rank multiplies matrices meanwhile,
// and the figure is the time above that of the multiplications alone.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "benchmarks/collectives/queued.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"

namespace cohort::bench {
namespace {

constexpr const char* kOperations[] = {"all_reduce", "all_gather_single", "reduce_scatter_single", "batch_isend_irecv"};
constexpr size_t kSizes[] = {4, 4096, 65536};
constexpr int kQueuedRounds = 60;
constexpr int kQueuedQuickRounds = 12;
// The time that a queued operation may take in addition to a synchronous one.
constexpr double kMostAdded = 5;

std::vector<double> per_operation(const std::vector<double>& milliseconds) {
  std::vector<double> microseconds;
  for (const double time : milliseconds) microseconds.push_back(time * 1e3 / kQueuedOperations);
  return microseconds;
}

std::string note_on(const std::vector<double>& queued, const std::vector<double>& synchronous) {
  std::vector<double> added;
  for (size_t i = 0; i < queued.size(); ++i) added.push_back(queued[i] - synchronous[i]);
  return fmt::format("queued: {:+.2f} us; at most {:g} are allowed", median(added), kMostAdded);
}

void add_rows(const std::string& name, const Times& times, std::vector<Row>& rows) {
  const auto of = [&](const char* variant) { return per_operation(times.at(variant)); };
  const auto add = [&](Row row, const char* where, const std::vector<double>& queued,
                       const std::vector<double>& called) {
    row.case_name = name + where;
    row.rival_name = "synchronous";
    row.unit = "us";
    row.note = note_on(queued, called);
    rows.push_back(row);
  };
  add(compare_times(of("queued"), of("called")), "/idle", of("queued"), of("called"));
  const AddedTimes added{of("queued-load"), of("load"), of("called-load"), of("load")};
  add(compare_added_times(added), "/load", added.ours, added.rival);
}

}  // namespace

std::vector<Row> run_queued(const Settings& settings) {
  const ScratchFolder folder;
  Team team({.name = "queued", .folder = folder.path(), .command = {settings.program, kQueuedRank, settings.backend}});
  std::vector<Variant> variants;
  for (const char* name : {"queued", "called", "load", "queued-load", "called-load"}) {
    variants.push_back({name, &team, name});
  }
  const auto never = std::chrono::steady_clock::time_point::max();
  std::vector<Row> rows;
  for (const char* operation : kOperations) {
    for (const size_t num_bytes : kSizes) {
      if (settings.is_quick && num_bytes == 65536) continue;
      team.ask(fmt::format("copy {} {}", operation, num_bytes));
      const auto times = take_turns(variants, {.num_warm = 3,
                                               .num_steps = 10,
                                               .num_rounds = settings.rounds(kQueuedRounds, kQueuedQuickRounds),
                                               .deadline = never,
                                               .end = never});
      add_rows(fmt::format("{}/{}B/ranks=2", operation, num_bytes), times, rows);
    }
  }
  return rows;
}

}  // namespace cohort::bench
