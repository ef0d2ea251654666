/// What a scheduler's variables say of this process: SLURM, OpenMPI, MPICH and its relatives, Kubernetes indexed jobs. Pure.
///
/// A process is one task of a job's step. Under `env://` a task is a rank; under `cohort run` it is an agent.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace cohort::rendezvous {

using Variables = std::map<std::string, std::string>;

struct SchedulerEnvironment {
  /// "SLURM", "OpenMPI", "MPICH" (also Intel MPI and others that set PMI_RANK), "PMIx", "Kubernetes".
  std::string name;
  /// In words: "task 1 of 4 of SLURM job 12.0, on node 0 of 2".
  std::string found;
  /// Unique on a host while the job runs: "slurm-12.0". Empty if nothing tells the job from others.
  std::string job_id;
  /// Of the task. Nothing if this process is not a task, such as a batch script.
  std::optional<int> rank, world_size, local_rank, local_world_size;
  /// Cores that the task was given for itself (SLURM's --cpus-per-task).
  std::optional<int> num_cores;
  /// Of the task's host.
  std::optional<int> node_rank, num_nodes;
  /// Where task 0 runs: a host's name, 127.0.0.1 if all tasks share this host, empty if it is not known.
  std::string first_host;
  /// Where task 0 may serve the others; from the job's id, so that every task computes the same.
  std::optional<int> port;
  /// What is missing above and how to get it, a sentence for a hint; empty if nothing is.
  std::string gap;

  bool is_one_host() const { return first_host == "127.0.0.1"; }
};

/// Nothing if no scheduler started this process or a parent of it. Of two (mpirun inside a SLURM job) the inner one.
std::optional<SchedulerEnvironment> read_scheduler(const Variables& variables);

/// The port of a job: 12000 to 31999, below the ports that Linux gives to clients. Neighbouring SLURM jobs, and the first 16
/// steps of a job, differ for certain; other ids are spread evenly.
int port_of_job(const std::string& job_id);

}  // namespace cohort::rendezvous
