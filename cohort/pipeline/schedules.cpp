#include "cohort/pipeline/schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/pipeline/schedule_lists.h"
#include "cohort/pipeline/stage_ranks.h"

namespace cohort::pipeline {
namespace {

struct ScheduleName {
  const char* name;
  ScheduleKind kind;
};
// In the order of Python's error.
constexpr std::array<ScheduleName, 7> kScheduleNames = {
    {{"1F1B", ScheduleKind::k1F1B},
     {"Interleaved1F1B", ScheduleKind::kInterleaved1F1B},
     {"GPipe", ScheduleKind::kGPipe},
     {"LoopedBFS", ScheduleKind::kLoopedBFS},
     {"InterleavedZeroBubble", ScheduleKind::kInterleavedZeroBubble},
     {"ZBVZeroBubble", ScheduleKind::kZBVZeroBubble},
     {"DualPipeV", ScheduleKind::kDualPipeV}}};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return lower;
}

bool has_one_stage_per_rank(ScheduleKind kind) { return kind == ScheduleKind::kGPipe || kind == ScheduleKind::k1F1B; }
bool is_v(ScheduleKind kind) { return kind == ScheduleKind::kZBVZeroBubble || kind == ScheduleKind::kDualPipeV; }

base::Result<void> check_numbers(const PipelineShape& shape) {
  const auto is_outside = [](int number, int most) { return number < 1 || number > most; };
  if (is_outside(shape.num_ranks, kMostRanks)) {
    return base::Error(fmt::format("a pipeline has 1 to {} ranks, not {}", kMostRanks, shape.num_ranks));
  }
  if (is_outside(shape.num_stages, kMostStages)) {
    return base::Error(fmt::format("a pipeline has 1 to {} stages, not {}", kMostStages, shape.num_stages));
  }
  if (is_outside(shape.num_microbatches, kMostMicrobatches)) {
    return base::Error(
        fmt::format("a batch has 1 to {} microbatches, not {}", kMostMicrobatches, shape.num_microbatches));
  }
  if (shape.num_ranks > shape.num_stages) {
    return base::Error(fmt::format("Pipeline group size {} cannot be larger than number of stages {}", shape.num_ranks,
                                   shape.num_stages));
  }
  // Each stage and microbatch has a forward, two parts of backward, and idle steps.
  const auto num_actions =
      uint64_t{4} * static_cast<uint64_t>(shape.num_stages) * static_cast<uint64_t>(shape.num_microbatches);
  if (num_actions > kMostActions) {
    return base::Error(fmt::format("{} stages and {} microbatches make lists of more than {} actions", shape.num_stages,
                                   shape.num_microbatches, kMostActions));
  }
  return {};
}

base::Result<void> check_v(ScheduleKind kind, const PipelineShape& shape) {
  if (auto ranks = v_stage_ranks(shape.num_ranks, shape.num_stages); !ranks) return std::move(ranks).error();
  if (shape.num_stages != 2 * shape.num_ranks) {
    return base::Error(
        fmt::format("ZBV requires exactly 2 stages per rank, but got {}.", shape.num_stages / shape.num_ranks));
  }
  if (kind == ScheduleKind::kDualPipeV && shape.num_microbatches < shape.num_stages) {
    return base::Error(
        fmt::format("DualPipeV requires at least as many microbatches as stages, but got {} microbatches "
                    "and {} stages.",
                    shape.num_microbatches, shape.num_stages));
  }
  return {};
}

base::Result<void> check_looped(ScheduleKind kind, const PipelineShape& shape) {
  if (shape.num_stages % shape.num_ranks) {
    return base::Error(fmt::format("{} needs as many stages on each rank, but {} stages are not a multiple of {} ranks",
                                   schedule_name(kind), shape.num_stages, shape.num_ranks));
  }
  const int num_rounds = std::max(1, shape.num_microbatches / shape.num_ranks);
  if (kind == ScheduleKind::kLoopedBFS || shape.num_microbatches % num_rounds == 0) return {};
  return base::Error(fmt::format(
      "{} requires the number of microbatches to be a multiple of the number of rounds ({}), but got {}.",
      kind == ScheduleKind::kInterleaved1F1B ? "Interleaved 1F1B" : "Zero bubble", num_rounds, shape.num_microbatches));
}

base::Result<void> check_shape(ScheduleKind kind, const PipelineShape& shape) {
  if (auto fine = check_numbers(shape); !fine) return fine;
  if (is_v(kind)) return check_v(kind, shape);
  if (!has_one_stage_per_rank(kind)) return check_looped(kind, shape);
  if (shape.num_stages != shape.num_ranks) {
    return base::Error(fmt::format("{} has one stage on each rank, but got {} stages and {} ranks", schedule_name(kind),
                                   shape.num_stages, shape.num_ranks))
        .with_hint("use Interleaved1F1B or LoopedBFS for several stages on a rank");
  }
  if (kind == ScheduleKind::k1F1B && shape.num_microbatches < shape.num_stages) {
    return base::Error(
        fmt::format("Number of microbatches ({}) must be greater than or equal to the number of stages ({}).",
                    shape.num_microbatches, shape.num_stages));
  }
  return {};
}

ActionList list_of(ScheduleKind kind, const PipelineShape& shape, int rank) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return gpipe_list(shape, rank);
    case ScheduleKind::k1F1B:
      return one_forward_one_backward_list(shape, rank);
    case ScheduleKind::kLoopedBFS:
      return looped_list(shape, rank);
    case ScheduleKind::kInterleaved1F1B:
    case ScheduleKind::kInterleavedZeroBubble:
      return interleaved_list(shape, rank, kind == ScheduleKind::kInterleavedZeroBubble);
    case ScheduleKind::kZBVZeroBubble:
      return zero_bubble_v_list(shape, rank);
    case ScheduleKind::kDualPipeV:
      return dual_pipe_list(shape, rank);
  }
  return {};
}

}  // namespace

base::Result<ScheduleKind> schedule_by_name(std::string_view name) {
  const std::string wanted = lower_case(name);
  for (const ScheduleName& each : kScheduleNames) {
    if (lower_case(each.name) == wanted) return each.kind;
  }
  const auto shown = std::string(name.substr(0, 100));
  std::vector<std::string> names;
  for (const std::string& each : schedule_names()) names.push_back("'" + each + "'");
  return base::Error(fmt::format("Unknown schedule name '{}'. The valid options are [{}]{}", shown,
                                 base::join(names, ", "), base::did_you_mean(shown, schedule_names())));
}

std::string schedule_name(ScheduleKind kind) {
  for (const ScheduleName& each : kScheduleNames) {
    if (each.kind == kind) return each.name;
  }
  return "";
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleName& each : kScheduleNames) names.emplace_back(each.name);
  return names;
}

base::Result<PipelineOrder> plan_schedule(ScheduleKind kind, const PipelineShape& shape) {
  if (auto fine = check_shape(kind, shape); !fine) return fine.error();
  PipelineOrder order;
  for (int rank = 0; rank < shape.num_ranks; ++rank) order.push_back(list_of(kind, shape, rank));
  return kind == ScheduleKind::kInterleavedZeroBubble ? with_bubbles(order) : order;
}

base::Result<StageRanks> stage_ranks_of(ScheduleKind kind, const PipelineShape& shape) {
  if (auto fine = check_shape(kind, shape); !fine) return fine.error();
  if (is_v(kind)) return v_stage_ranks(shape.num_ranks, shape.num_stages);
  return looped_stage_ranks(shape.num_ranks, shape.num_stages);
}

}  // namespace cohort::pipeline
