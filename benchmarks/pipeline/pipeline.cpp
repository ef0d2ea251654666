// pipeline: the time that a schedule loses (its bubble), beside the loss in theory, with stages that take a known time: they
// sleep, so that more ranks than cores can be measured. The theory uses their measured times; the time that LibTorch adds in a
// stage without a pipeline, to split a backward and to move tensors, counts as waiting. Also measures how long an activation
// takes to the next stage, beside the same pipeline on our backend "gloo" and beside one copy of its bytes; with the shared
// allocator it is sent without a copy, and the figure is the time of the message with its address.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"
#include "benchmarks/support/value_or_throw.h"
#include "cohort/pipeline/schedules.h"
#include "cohort/pipeline/simulation.h"

namespace cohort::bench {
namespace {

constexpr int kNumBubbleRanks = 4;
constexpr int kNumBubbleMicrobatches = 8;
constexpr const char* kMilliseconds = "20";  // for each part of a stage's work

Team start_pipeline_team(const Settings& settings, const std::string& folder, int num_ranks, const std::string& backend,
                         const std::string& allocator = "default") {
  std::map<std::string, std::string> environment;
  if (allocator == "shared") environment["COHORT_SHARED_ALLOCATOR"] = "1";
  return Team({.name = fmt::format("{}-{}-{}", backend, allocator, num_ranks),
               .folder = folder,
               .num_ranks = num_ranks,
               .command = {settings.program, kPipelineRank, std::to_string(num_ranks), backend},
               .environment = environment});
}

// The ranks' measurements: steps, the fraction of time that they waited in each, and the times of stages' work.
struct Measured {
  std::vector<double> steps, bubbles;
  double forward = 0, backward_input = 0, backward_weight = 0;
};

double median_of(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

Measured measure_bubble(Team& team, const std::string& schedule, int num_stages, int num_steps) {
  Measured measured;
  const auto command = fmt::format("bubble {} {} {} {}", schedule, num_stages, kNumBubbleMicrobatches, kMilliseconds);
  team.ask(command);  // the first step exchanges shapes
  team.ask(fmt::format("calibrate {}", kMilliseconds));
  const double share = 1.0 / num_steps / kNumBubbleRanks;
  for (int step = 0; step < num_steps; ++step) {
    double slowest = 0, work = 0;
    for (const auto& answer : team.ask(command)) {
      std::istringstream words(answer);
      double milliseconds = 0, own_work = 0, forward = 0, input = 0, weight = 0;
      words >> milliseconds >> own_work >> forward >> input >> weight;
      slowest = std::max(slowest, milliseconds);
      work += own_work;
      measured.forward += forward * share;
      measured.backward_input += input * share;
      measured.backward_weight += weight * share;
    }
    measured.steps.push_back(slowest);
    measured.bubbles.push_back(1 - work / slowest / kNumBubbleRanks);
  }
  return measured;
}

pipeline::Timeline timeline_of(pipeline::ScheduleKind kind, int num_stages, const Measured& measured) {
  const pipeline::PipelineShape shape{kNumBubbleRanks, num_stages, kNumBubbleMicrobatches};
  const auto order = value_or_throw(pipeline::plan_schedule(kind, shape));
  const auto stage_ranks = value_or_throw(pipeline::stage_ranks_of(kind, shape));
  return value_or_throw(pipeline::simulate(order, stage_ranks, pipeline::OrderFormat::kComputeOnly,
                                           {.forward = measured.forward,
                                            .backward_input = measured.backward_input,
                                            .backward_weight = measured.backward_weight,
                                            .is_first_stage_in_one_part = true}));
}

Row bubble_row(Team& team, const std::string& name, int num_steps) {
  const auto kind = value_or_throw(pipeline::schedule_by_name(name));
  const bool is_single = kind == pipeline::ScheduleKind::kGPipe || kind == pipeline::ScheduleKind::k1F1B;
  const int num_stages = is_single ? kNumBubbleRanks : 2 * kNumBubbleRanks;
  const Measured measured = measure_bubble(team, name, num_stages, num_steps);
  const auto timeline = timeline_of(kind, num_stages, measured);
  Row row;
  row.case_name = fmt::format("bubble/{}/ranks={}/microbatches={}", name, kNumBubbleRanks, kNumBubbleMicrobatches);
  row.rival_name = "theory";
  row.unit = "%";
  row.ours = 100 * median_of(measured.bubbles);
  row.rival = 100 * timeline.bubble();
  row.ratio = *row.rival / *row.ours;
  row.note = fmt::format("a step {:.1f} ms, in theory {:.1f} ms", median_of(measured.steps), timeline.duration);
  return row;
}

struct HandOver {
  const char* name;
  int num_bytes;
  int num_steps;
};
constexpr HandOver kHandOvers[] = {{"64KiB", 1 << 16, 40}, {"1MiB", 1 << 20, 10}, {"16MiB", 1 << 24, 2}};

struct HandOverTeams {
  Team ours, shared, gloo;
};

void add_hand_over_rows(std::vector<Row>& rows, const Settings& settings, HandOverTeams& teams, const HandOver& what) {
  const auto end = std::chrono::steady_clock::time_point::max();
  const auto hand = fmt::format("hand-{}", what.num_bytes), copy = fmt::format("copy-{}", what.num_bytes);
  const auto times = take_turns(
      {{"ours", &teams.ours, hand},
       {"shared", &teams.shared, hand},
       {"gloo", &teams.gloo, hand},
       {"copy", &teams.ours, copy}},
      {.num_warm = 1, .num_steps = what.num_steps, .num_rounds = settings.rounds(30, 8), .deadline = end, .end = end});
  for (const char* side : {"ours", "shared"}) {
    for (const char* rival : {"gloo", "copy"}) {
      Row row = compare_times(times.at(side), times.at(rival));
      row.case_name =
          fmt::format("hand-over/{}{}", what.name, side == std::string("shared") ? "/shared-allocator" : "");
      row.rival_name = rival;
      row.unit = "ms";
      rows.push_back(std::move(row));
    }
  }
}

}  // namespace

std::vector<Row> run_pipeline(const Settings& settings) {
  check_case(settings.only_case, {"bubble", "hand-over"});
  const ScratchFolder folder;
  std::vector<Row> rows;
  if (settings.only_case != "hand-over") {
    auto team = start_pipeline_team(settings, folder.path(), kNumBubbleRanks, settings.backend);
    for (const auto& name : pipeline::schedule_names()) {
      rows.push_back(bubble_row(team, name, settings.rounds(15, 3)));
    }
  }
  if (settings.only_case != "bubble") {
    HandOverTeams teams{start_pipeline_team(settings, folder.path(), 2, settings.backend),
                        start_pipeline_team(settings, folder.path(), 2, settings.backend, "shared"),
                        start_pipeline_team(settings, folder.path(), 2, "gloo")};
    for (const auto& what : kHandOvers) add_hand_over_rows(rows, settings, teams, what);
  }
  return rows;
}

}  // namespace cohort::bench
