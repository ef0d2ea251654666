#include "cohort/elastic/worker_environment.h"

namespace cohort::elastic {

std::map<std::string, std::string> worker_environment(const Job& job, int local_rank, const std::string& error_file,
                                                      int threads_per_rank,
                                                      std::map<std::string, std::string> inherited) {
  std::map<std::string, std::string> variables = std::move(inherited);
  const WorldLayout& layout = job.layout;
  const std::string rank = std::to_string(layout.rank(local_rank));
  const std::string world_size = std::to_string(layout.world_size());
  variables["RANK"] = rank;
  variables["WORLD_SIZE"] = world_size;
  variables["LOCAL_RANK"] = std::to_string(local_rank);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(layout.local_world_size);
  variables["GROUP_RANK"] = std::to_string(layout.node_rank);
  variables["GROUP_WORLD_SIZE"] = std::to_string(layout.num_nodes);
  variables["ROLE_RANK"] = rank;
  variables["ROLE_WORLD_SIZE"] = world_size;
  variables["ROLE_NAME"] = job.role;
  variables["MASTER_ADDR"] = job.master_address;
  variables["MASTER_PORT"] = std::to_string(job.master_port);
  variables["TORCHELASTIC_RESTART_COUNT"] = "0";
  variables["TORCHELASTIC_MAX_RESTARTS"] = "0";
  variables["TORCHELASTIC_RUN_ID"] = job.run_id;
  // Rank 0 hosts the store itself: "True" would make it connect to one that nobody started.
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  variables["TORCHELASTIC_ERROR_FILE"] = error_file;
  variables["TORCHELASTIC_SIGNALS_TO_HANDLE"] = job.handled_signals;
  variables.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (threads_per_rank > 0) variables.emplace("OMP_NUM_THREADS", std::to_string(threads_per_rank));
  return variables;
}

}  // namespace cohort::elastic
