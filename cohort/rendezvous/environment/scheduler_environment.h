/// Reads what a scheduler's variables say about this process: SLURM, OpenMPI, MPICH and related ones, Kubernetes indexed jobs.
/// Pure.
///
/// A process is one task of a job's step. With `env://` a task is a rank; with `cohort run` it is an agent.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace cohort::rendezvous {

using Variables = std::map<std::string, std::string>;

struct SchedulerEnvironment {
  /// "SLURM", "OpenMPI", "MPICH" (also Intel MPI and others that set PMI_RANK), "PMIx", "Kubernetes".
  std::string name;
  /// A description: "task 1 of 4 of SLURM job 12.0, on node 0 of 2".
  std::string found;
  /// Unique on a host while the job runs: "slurm-12.0". Empty if there is no such id.
  std::string job_id;
  /// Numbers of the task. Absent if this process is not a task, such as a batch script.
  std::optional<int> rank, world_size, local_rank, local_world_size;
  /// The number of cores that the task has for itself (SLURM's --cpus-per-task).
  std::optional<int> num_cores;
  /// Numbers of the task's host.
  std::optional<int> node_rank, num_nodes;
  /// The host on which task 0 runs: a name, 127.0.0.1 if all tasks share this host, empty if it is not known.
  std::string first_host;
  /// The port at which task 0 may serve the others. Computed from the job's id, so that every task gets the same.
  std::optional<int> port;
  /// A sentence for a hint: what is missing above and how to get it. Empty if nothing is missing.
  std::string gap;

  bool is_one_host() const { return first_host == "127.0.0.1"; }
};

/// Returns nothing if no scheduler started this process or a parent of it. Of two schedulers (mpirun inside a SLURM job) the
/// inner one counts.
std::optional<SchedulerEnvironment> read_scheduler(const Variables& variables);

/// Returns the port of a job: 12000 to 31999, below the ports that Linux gives to clients. Neighboring SLURM jobs, and the first
/// 16 steps of a job, always have different ports; other ids are spread evenly.
int port_of_job(const std::string& job_id);

}  // namespace cohort::rendezvous
