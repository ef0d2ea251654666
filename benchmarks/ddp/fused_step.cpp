// fused-step: a DDP step with AdamW, two ranks of one thread each, on one row, so that reduction and optimizer take most of it.
// The optimizer's step is inside the reduction (fuse_step), or LibTorch's step() follows it. Both are in one team of ranks and
// take blocks of steps in turn; a pair is one round. Parameters after a step are compared before anything is timed.
#include <chrono>
#include <stdexcept>

#include <fmt/core.h>

#include "benchmarks/support/question.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turns.h"

namespace cohort::bench {
namespace {

struct FusedCase {
  const char* name;
  int num_rounds;
  int num_quick_rounds;
};
constexpr FusedCase kFusedCases[] = {{"adamw-4x1024", 40, 12}, {"adamw-4x4096", 12, 0}};

void verify_parameters(Team& team) {
  const auto fused = team.ask("verify fused");
  const auto separate = team.ask("verify ours");
  // The kernels round differently.
  if (agree(fused[0], fused[1]) && agree(fused[0], separate[0], 1e-6)) return;
  throw std::runtime_error(
      fmt::format("parameters after a step differ: {} and {} fused, {} after step()", fused[0], fused[1], separate[0]));
}

Row run_fused_case(Team& team, const FusedCase& what, bool is_quick) {
  for (const char* variant : {"fused", "ours"}) team.ask(fmt::format("copy {} {}", variant, what.name));
  verify_parameters(team);
  // The second step rebuilds the buckets.
  for (const char* variant : {"fused", "ours"}) team.ask(fmt::format("run {} 0 1", variant));
  const auto end = std::chrono::steady_clock::time_point::max();
  const auto times = take_turns({{"fused", &team, "fused"}, {"separate", &team, "ours"}},
                                {.num_warm = 1,
                                 .num_steps = 3,
                                 .num_rounds = is_quick ? what.num_quick_rounds : what.num_rounds,
                                 .deadline = end,
                                 .end = end});
  for (const char* variant : {"fused", "ours"}) team.ask(fmt::format("drop {}", variant));
  Row row = compare_times(times.at("fused"), times.at("separate"));
  row.case_name = fmt::format("{}/ranks=2", what.name);
  row.rival_name = "libtorch-adamw";
  row.unit = "ms";
  return row;
}

}  // namespace

std::vector<Row> run_fused_step(const Settings& settings) {
  const ScratchFolder folder;
  Team team({.name = "cpp", .folder = folder.path(), .command = {settings.program, kDdpStepRank, settings.backend}});
  std::vector<Row> rows;
  for (const FusedCase& what : kFusedCases) {
    if (settings.is_quick && what.num_quick_rounds == 0) continue;
    rows.push_back(run_fused_case(team, what, settings.is_quick));
  }
  return rows;
}

}  // namespace cohort::bench
