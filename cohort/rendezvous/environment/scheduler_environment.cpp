#include "cohort/rendezvous/environment/scheduler_environment.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "cohort/base/text/text.h"
#include "cohort/rendezvous/environment/hostlist.h"

namespace cohort::rendezvous {
namespace {

constexpr int kFirstPort = 12'000;
constexpr int kNumPorts = 20'000;
constexpr int kStepsWithOwnPorts = 16;
constexpr const char* kSlurm = "slurm-";
// SLURM's step numbers from here on do not belong to an `srun`, but to the batch script, an interactive shell, or the job's
// container.
constexpr long long kFirstSpecialStep = 0xfffffff0;

std::string text_of(const Variables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second;
}

std::optional<int> count_of(const Variables& variables, const char* name) {
  const auto value = base::parse_int(base::trim(text_of(variables, name)));
  if (!value || *value < 0 || *value > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*value);
}

// Returns the first host of SLURM's list, where its task 0 runs; empty, with a gap, if that cannot be known.
std::string first_slurm_host(const Variables& variables, const char* list, SchedulerEnvironment& scheduler) {
  const auto text = text_of(variables, list);
  if (text.empty()) return {};
  if (text_of(variables, "SLURM_DISTRIBUTION") == "arbitrary") {
    scheduler.gap = "with SLURM_DISTRIBUTION=arbitrary rank 0 may be on any node: set MASTER_ADDR to its host";
    return {};
  }
  const auto hosts = expand_hostlist(text);
  if (!hosts) {
    scheduler.gap = fmt::format("{}: {}; set MASTER_ADDR to rank 0's host", list, hosts.error().message());
    return {};
  }
  return hosts->front();
}

// Returns the number of the step's tasks on each node; empty if it is not known.
std::vector<int> tasks_per_node(const Variables& variables) {
  const auto counts = expand_counts(text_of(variables, "SLURM_STEP_TASKS_PER_NODE"));
  return counts ? *counts : std::vector<int>();
}

// A batch script has SLURM_PROCID=0 and the SLURM_NTASKS of its complete job, and, if a task of another job called sbatch, even
// the SLURM_STEP_* of that task's step. Only in a task do SLURM_NTASKS and SLURM_GTIDS agree with these.
bool is_slurm_task(const Variables& variables) {
  const auto step = base::parse_int(text_of(variables, "SLURM_STEP_ID"));
  const auto num_tasks = count_of(variables, "SLURM_STEP_NUM_TASKS");
  if (!step || *step < 0 || *step >= kFirstSpecialStep || !num_tasks || !count_of(variables, "SLURM_PROCID"))
    return false;
  if (const auto of_job = count_of(variables, "SLURM_NTASKS"); of_job && *of_job != *num_tasks) return false;
  const auto node = count_of(variables, "SLURM_NODEID");
  const auto counts = tasks_per_node(variables);
  const auto here = text_of(variables, "SLURM_GTIDS");
  if (here.empty() || !node || static_cast<size_t>(*node) >= counts.size()) return true;
  return base::split(here, ',').size() == static_cast<size_t>(counts[*node]);
}

SchedulerEnvironment read_slurm(const Variables& variables) {
  SchedulerEnvironment scheduler{.name = "SLURM"};
  const auto job = text_of(variables, "SLURM_JOB_ID");
  if (!is_slurm_task(variables)) {
    scheduler.found = fmt::format("SLURM job {}", job);
    scheduler.job_id = kSlurm + job;
    scheduler.num_nodes = count_of(variables, "SLURM_JOB_NUM_NODES");
    scheduler.gap = fmt::format(
        "this process is in SLURM job {}, but is not one of its tasks (a batch script or a shell): start the program "
        "with srun",
        job);
    return scheduler;
  }
  const auto step = text_of(variables, "SLURM_STEP_ID");
  scheduler.rank = count_of(variables, "SLURM_PROCID");
  scheduler.world_size = count_of(variables, "SLURM_STEP_NUM_TASKS");
  scheduler.local_rank = count_of(variables, "SLURM_LOCALID");
  scheduler.num_cores = count_of(variables, "SLURM_CPUS_PER_TASK");
  scheduler.node_rank = count_of(variables, "SLURM_NODEID");
  scheduler.num_nodes = count_of(variables, "SLURM_STEP_NUM_NODES");
  const auto counts = tasks_per_node(variables);
  if (scheduler.node_rank && static_cast<size_t>(*scheduler.node_rank) < counts.size()) {
    scheduler.local_world_size = counts[*scheduler.node_rank];
  }
  scheduler.job_id = fmt::format("{}{}.{}", kSlurm, job, step);
  scheduler.port = port_of_job(scheduler.job_id);
  scheduler.first_host =
      scheduler.num_nodes == 1 ? "127.0.0.1" : first_slurm_host(variables, "SLURM_STEP_NODELIST", scheduler);
  scheduler.found = fmt::format("task {} of {} of SLURM job {}.{}", *scheduler.rank, *scheduler.world_size, job, step);
  if (scheduler.node_rank && scheduler.num_nodes) {
    scheduler.found += fmt::format(", on node {} of {}", *scheduler.node_rank, *scheduler.num_nodes);
  }
  return scheduler;
}

// mpirun does not name the host of rank 0. If all ranks are here it is this host; in a SLURM job it is the job's first host.
void find_first_host(const Variables& variables, const std::string& flag, SchedulerEnvironment& scheduler) {
  if (scheduler.local_world_size && scheduler.local_world_size == scheduler.world_size) {
    scheduler.first_host = "127.0.0.1";
    scheduler.node_rank = 0;
    scheduler.num_nodes = 1;
    return;
  }
  scheduler.first_host = first_slurm_host(variables, "SLURM_JOB_NODELIST", scheduler);
  if (scheduler.first_host.empty() && scheduler.gap.empty()) {
    scheduler.gap = fmt::format("{} does not say on which host rank 0 is: {}", scheduler.name, flag);
  }
}

SchedulerEnvironment read_openmpi(const Variables& variables) {
  SchedulerEnvironment scheduler{.name = "OpenMPI"};
  scheduler.rank = count_of(variables, "OMPI_COMM_WORLD_RANK");
  scheduler.world_size = count_of(variables, "OMPI_COMM_WORLD_SIZE");
  scheduler.local_rank = count_of(variables, "OMPI_COMM_WORLD_LOCAL_RANK");
  scheduler.local_world_size = count_of(variables, "OMPI_COMM_WORLD_LOCAL_SIZE");
  auto job = text_of(variables, "PMIX_NAMESPACE");
  if (job.empty()) job = text_of(variables, "OMPI_MCA_ess_base_jobid");
  if (!job.empty()) {
    scheduler.job_id = "openmpi-" + job;
    scheduler.port = port_of_job(scheduler.job_id);
  }
  find_first_host(variables, "mpirun -x MASTER_ADDR=<host of rank 0>", scheduler);
  return scheduler;
}

SchedulerEnvironment read_pmi(const Variables& variables) {
  SchedulerEnvironment scheduler{.name = "MPICH"};
  scheduler.rank = count_of(variables, "PMI_RANK");
  scheduler.world_size = count_of(variables, "PMI_SIZE");
  scheduler.local_rank = count_of(variables, "MPI_LOCALRANKID");
  scheduler.local_world_size = count_of(variables, "MPI_LOCALNRANKS");
  if (const auto job = text_of(variables, "SLURM_JOB_ID"); !job.empty()) {
    scheduler.job_id = kSlurm + job;
    scheduler.port = port_of_job(scheduler.job_id);
  }
  find_first_host(variables, "mpirun -genv MASTER_ADDR <host of rank 0>", scheduler);
  if (!scheduler.port && scheduler.gap.empty() && !scheduler.is_one_host()) {
    scheduler.gap =
        "MPICH does not say which job this is, so the port cannot be chosen: mpirun -genv MASTER_PORT <free port>";
  }
  return scheduler;
}

SchedulerEnvironment read_kubernetes(const Variables& variables) {
  SchedulerEnvironment scheduler{.name = "Kubernetes"};
  scheduler.rank = scheduler.node_rank = count_of(variables, "JOB_COMPLETION_INDEX");
  scheduler.found = fmt::format("pod {} of a Kubernetes indexed job", *scheduler.rank);
  scheduler.gap =
      "JOB_COMPLETION_INDEX gives this pod's rank; give WORLD_SIZE, MASTER_ADDR (pod 0's name in a headless service) "
      "and "
      "MASTER_PORT in the pod's env";
  return scheduler;
}

SchedulerEnvironment read_pmix(const Variables& variables) {
  SchedulerEnvironment scheduler{.name = "PMIx"};
  scheduler.rank = count_of(variables, "PMIX_RANK");
  scheduler.found = fmt::format("rank {} of PMIx job {}", *scheduler.rank, text_of(variables, "PMIX_NAMESPACE"));
  scheduler.gap = "PMIx tells the number of ranks only to MPI programs: set WORLD_SIZE, MASTER_ADDR and MASTER_PORT";
  return scheduler;
}

bool has_counts(const Variables& variables, const char* rank, const char* size) {
  return count_of(variables, rank) && count_of(variables, size);
}

void describe_mpi(SchedulerEnvironment& scheduler) {
  scheduler.found = fmt::format("rank {} of {} of {}'s mpirun", *scheduler.rank, *scheduler.world_size, scheduler.name);
}

}  // namespace

std::optional<SchedulerEnvironment> read_scheduler(const Variables& variables) {
  const bool in_slurm = !text_of(variables, "SLURM_JOB_ID").empty();
  std::optional<SchedulerEnvironment> scheduler;
  // mpirun starts its daemons with srun, so its ranks have SLURM's variables of the daemon.
  if (has_counts(variables, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) {
    scheduler = read_openmpi(variables);
    describe_mpi(*scheduler);
    return scheduler;
  }
  if (in_slurm) scheduler = read_slurm(variables);
  if (has_counts(variables, "PMI_RANK", "PMI_SIZE")) {
    // `srun --mpi=pmi2` sets these as well, and then both agree.
    const auto mpi = read_pmi(variables);
    if (!scheduler || scheduler->rank != mpi.rank || scheduler->world_size != mpi.world_size) {
      scheduler = mpi;
      describe_mpi(*scheduler);
    }
    return scheduler;
  }
  if (scheduler) return scheduler;
  if (count_of(variables, "JOB_COMPLETION_INDEX")) return read_kubernetes(variables);
  if (count_of(variables, "PMIX_RANK")) return read_pmix(variables);
  return std::nullopt;
}

int port_of_job(const std::string& job_id) {
  uint64_t number = 0;
  const auto dot = job_id.find('.');
  const std::string slurm = kSlurm;
  const auto job =
      job_id.rfind(slurm, 0) == 0
          ? base::parse_int(job_id.substr(slurm.size(), dot == std::string::npos ? dot : dot - slurm.size()))
          : std::nullopt;
  if (job) {
    const auto step = dot == std::string::npos ? 0 : base::parse_int(job_id.substr(dot + 1)).value_or(0);
    number = static_cast<uint64_t>(*job) * kStepsWithOwnPorts + static_cast<uint64_t>(step) % kStepsWithOwnPorts;
  } else {
    number = 14695981039346656037ULL;  // FNV-1a
    for (const char letter : job_id) number = (number ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
    number ^= number >> 32;
  }
  return kFirstPort + static_cast<int>(number % kNumPorts);
}

}  // namespace cohort::rendezvous
