#include "cohort/elastic/worker_environment.h"

#include "cohort/elastic/orphans.h"
#include "cohort/vault/place.h"

namespace cohort::elastic {

WorkerContext context_of(const rendezvous::Round& round) {
  return {.layout = layout_of(round),
          .role = round.nodes[static_cast<size_t>(round.node_rank)].role,
          .job = round.job,
          .store_address = round.store_address,
          .store_port = round.store_port,
          .agent_hosts_store = round.agent_hosts_store,
          .restart_count = round.restart_count,
          .max_restarts = round.max_restarts};
}

std::map<std::string, std::string> worker_environment(const WorkerContext& context, const WorkerShare& share,
                                                      std::map<std::string, std::string> inherited) {
  std::map<std::string, std::string> variables = std::move(inherited);
  const auto set = [&](const char* name, int number) { variables[name] = std::to_string(number); };
  const WorldLayout& layout = context.layout;
  set("RANK", layout.first_rank + share.local_rank);
  set("WORLD_SIZE", layout.world_size);
  set("LOCAL_RANK", context.virtual_local_rank ? 0 : share.local_rank);
  set("LOCAL_WORLD_SIZE", layout.local_world_size);
  set("GROUP_RANK", layout.node_rank);
  set("GROUP_WORLD_SIZE", layout.num_nodes);
  set("ROLE_RANK", layout.first_role_rank + share.local_rank);
  set("ROLE_WORLD_SIZE", layout.role_world_size);
  variables["ROLE_NAME"] = context.role;
  variables["MASTER_ADDR"] = context.store_address;
  set("MASTER_PORT", context.store_port);
  set("TORCHELASTIC_RESTART_COUNT", context.restart_count);
  set("TORCHELASTIC_MAX_RESTARTS", context.max_restarts);
  variables["TORCHELASTIC_RUN_ID"] = context.run_id;
  variables["COHORT_JOB"] = context.job;
  variables["TORCHELASTIC_USE_AGENT_STORE"] = context.agent_hosts_store ? "True" : "False";
  variables["TORCHELASTIC_ERROR_FILE"] = share.error_file;
  variables["TORCHELASTIC_SIGNALS_TO_HANDLE"] = context.handled_signals;
  if (!context.timer_file.empty()) variables["TORCHELASTIC_TIMER_FILE"] = context.timer_file;
  if (!context.agent_mark.empty()) variables[kAgentVariable] = context.agent_mark;
  // One that we inherit is another launcher's.
  variables.erase(vault::kPlaceVariable);
  if (!context.vault.empty()) variables[vault::kPlaceVariable] = vault::place_value(context.vault, share.local_rank);
  // Clients that have not asked for it learn nothing of the agents' secret.
  variables.erase("COHORT_TOKEN");
  variables.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (share.num_threads > 0) variables.emplace("OMP_NUM_THREADS", std::to_string(share.num_threads));
  if (!share.visible_gpus.empty()) variables["CUDA_VISIBLE_DEVICES"] = share.visible_gpus;
  return variables;
}

}  // namespace cohort::elastic
