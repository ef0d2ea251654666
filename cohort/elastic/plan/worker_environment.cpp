#include "cohort/elastic/plan/worker_environment.h"

#include "cohort/elastic/plan/world_layout.h"
#include "cohort/elastic/processes/orphans.h"
#include "cohort/snapshot/place.h"

namespace cohort::elastic {

std::map<std::string, std::string> worker_environment(const LaunchPlan& plan, const rendezvous::Round& round,
                                                      const AttemptFiles& files, int local_rank,
                                                      std::map<std::string, std::string> inherited) {
  std::map<std::string, std::string> variables = std::move(inherited);
  for (const auto& [name, value] : plan.variables) variables[name] = value;
  const auto set = [&](const char* name, int number) { variables[name] = std::to_string(number); };
  const WorldLayout layout = layout_of(round);
  set("RANK", layout.first_rank + local_rank);
  set("WORLD_SIZE", layout.world_size);
  set("LOCAL_RANK", plan.virtual_local_rank ? 0 : local_rank);
  set("LOCAL_WORLD_SIZE", layout.local_world_size);
  set("GROUP_RANK", layout.node_rank);
  set("GROUP_WORLD_SIZE", layout.num_nodes);
  set("ROLE_RANK", layout.first_role_rank + local_rank);
  set("ROLE_WORLD_SIZE", layout.role_world_size);
  variables["ROLE_NAME"] = round.nodes[static_cast<size_t>(round.node_rank)].role;
  variables["MASTER_ADDR"] = round.store_address;
  set("MASTER_PORT", round.store_port);
  set("TORCHELASTIC_RESTART_COUNT", round.restart_count);
  set("TORCHELASTIC_MAX_RESTARTS", round.max_restarts);
  variables["TORCHELASTIC_RUN_ID"] = plan.rendezvous.run_id;
  variables["COHORT_JOB"] = round.job;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = round.agent_hosts_store ? "True" : "False";
  variables["TORCHELASTIC_ERROR_FILE"] = error_file_of(files.folder, local_rank);
  if (!files.timer_file.empty()) variables["TORCHELASTIC_TIMER_FILE"] = files.timer_file;
  if (!files.mark.empty()) variables[kAgentVariable] = files.mark;
  // An inherited value belongs to another launcher.
  variables.erase(snapshot::kPlaceVariable);
  if (!files.snapshot_server.empty()) {
    variables[snapshot::kPlaceVariable] = snapshot::place_value(files.snapshot_server, local_rank);
  }
  // Workers that have not asked for the token must not learn the agents' secret.
  variables.erase("COHORT_TOKEN");
  variables.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  const auto place = static_cast<size_t>(local_rank);
  const int num_threads = plan.num_threads[place];
  if (num_threads > 0) variables.emplace("OMP_NUM_THREADS", std::to_string(num_threads));
  if (!plan.gpus[place].empty()) variables["CUDA_VISIBLE_DEVICES"] = plan.gpus[place];
  return variables;
}

}  // namespace cohort::elastic
