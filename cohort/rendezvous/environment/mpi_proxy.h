/// Finds an id for jobs of MPICH, Intel MPI and related ones, which give ranks none. All ranks of a host descend from one
/// process, hydra_pmi_proxy, and its pid is used as the id.
#pragma once

#include <optional>

namespace cohort::rendezvous {

/// Returns a port that is the same on every rank of a job on this host, and different for two jobs. Returns nothing if no
/// ancestor of `pid` is that process.
std::optional<int> port_of_mpi_proxy(int pid);

}  // namespace cohort::rendezvous
