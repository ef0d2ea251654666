#include "cohort/elastic/plan/worker_plan.h"

#include <fmt/format.h>

#include "cohort/base/system/env.h"
#include "cohort/elastic/output/substitution.h"
#include "cohort/elastic/plan/world_layout.h"

namespace cohort::elastic {

using base::Result;

namespace {

std::string line_prefix(const std::string& role, int local_rank, int rank) {
  const auto pattern = base::get_env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (!pattern) return fmt::format("[{}{}]:", role, local_rank);
  return substitute(*pattern,
                    {{"role_name", role}, {"local_rank", std::to_string(local_rank)}, {"rank", std::to_string(rank)}});
}

}  // namespace

Result<std::vector<WorkerSpec>> plan_workers(const LaunchPlan& plan, const rendezvous::Round& round,
                                             const AttemptFiles& files) {
  const auto inherited = base::environment();
  const int first_rank = layout_of(round).first_rank;
  const std::string& role = round.nodes[static_cast<size_t>(round.node_rank)].role;
  const std::vector<WorkerRoutes> routes = plan_worker_routes(plan.logs, files.folder);
  std::vector<WorkerSpec> specs;
  for (int local_rank = 0; local_rank < plan.rendezvous.local_world_size; ++local_rank) {
    const auto place = static_cast<size_t>(local_rank);
    Result<std::vector<std::string>> command = worker_command(plan.program, local_rank);
    if (!command) return command.error();
    specs.push_back({.rank = first_rank + local_rank,
                     .local_rank = local_rank,
                     .command = std::move(*command),
                     .environment = worker_environment(plan, round, files, local_rank, inherited),
                     .routes = routes[place],
                     .line_prefix = line_prefix(role, local_rank, first_rank + local_rank),
                     .cpus = plan.cpus[place]});
  }
  return specs;
}

}  // namespace cohort::elastic
