#include "cohort/elastic/worker_plan.h"

#include <fmt/format.h>

#include "cohort/base/env.h"
#include "cohort/elastic/substitution.h"
#include "cohort/elastic/worker_environment.h"

namespace cohort::elastic {

using base::Result;

namespace {

std::string line_prefix(const WorkerContext& context, int local_rank) {
  const auto pattern = base::get_env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (!pattern) return fmt::format("[{}{}]:", context.role, local_rank);
  return substitute(*pattern, {{"role_name", context.role},
                               {"local_rank", std::to_string(local_rank)},
                               {"rank", std::to_string(context.layout.first_rank + local_rank)}});
}

}  // namespace

Result<std::vector<WorkerSpec>> plan_workers(const LaunchOptions& options, const LaunchPlan& plan,
                                             const rendezvous::Round& round, const AttemptFiles& files) {
  WorkerContext context = context_of(round);
  context.run_id = plan.rendezvous.run_id;
  context.handled_signals = options.signals_to_handle;
  context.virtual_local_rank = options.virtual_local_rank;
  context.timer_file = files.timer_file;
  context.agent_mark = files.mark;
  context.vault = files.vault;
  auto inherited = base::environment();
  for (const auto& [name, value] : plan.allocator_variables) inherited[name] = value;
  const std::vector<WorkerRoutes> routes = plan_worker_routes(plan.logs, files.folder);
  std::vector<WorkerSpec> specs;
  for (int local_rank = 0; local_rank < plan.local_world_size; ++local_rank) {
    const auto place = static_cast<size_t>(local_rank);
    Result<std::vector<std::string>> command = worker_command(options.program, local_rank);
    if (!command) return command.error();
    const WorkerShare share{.local_rank = local_rank,
                            .error_file = routes[place].error_file,
                            .num_threads = plan.num_threads[place],
                            .visible_gpus = plan.gpus[place]};
    specs.push_back({.rank = context.layout.first_rank + local_rank,
                     .local_rank = local_rank,
                     .command = std::move(*command),
                     .environment = worker_environment(context, share, inherited),
                     .routes = routes[place],
                     .line_prefix = line_prefix(context, local_rank),
                     .cpus = plan.cpus[place]});
  }
  return specs;
}

}  // namespace cohort::elastic
