/// MPICH, Intel MPI and others of their family give ranks no id of the job; but on a host all of them descend from one process,
/// hydra_pmi_proxy, whose pid stands in for it.
#pragma once

#include <optional>

namespace cohort::rendezvous {

/// The same on every rank of a job on this host, and different for two jobs. Nothing if no ancestor of `pid` is that process.
std::optional<int> port_of_mpi_proxy(int pid);

}  // namespace cohort::rendezvous
