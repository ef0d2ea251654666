/// Where ranks meet: an init_method and the environment become a host and port, or a file, with rank and world size.
/// Follows torch/distributed/rendezvous.py. Pure but for reading the environment.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/export.h"

namespace cohort::comm {

struct RendezvousPlan {
  enum class Kind { kTcp, kFile };
  Kind kind = Kind::kTcp;
  int rank = -1;
  int world_size = -1;
  std::string host;              ///< kTcp
  uint16_t port = 0;             ///< kTcp
  bool use_libuv = true;         ///< kTcp
  bool hosts_store = false;      ///< kTcp: this rank runs the store's server
  bool is_agents_store = false;  ///< kTcp: no rank does, but their agent
  /// kTcp: where host and port were read, for texts: "MASTER_ADDR and MASTER_PORT" or "init_method".
  std::string source;
  std::string path;  ///< kFile
};

/// "host:port" of a store that rank 0 hosts and ends with its group; "" for files and the stores of agents.
std::string place_of_rank_0(const RendezvousPlan& plan);

/// `rank` and `world_size` of -1 mean "not given"; given ones win over URL and environment.
/// Throws c10::ValueError with PyTorch's texts; the message names the variable or URL part that is missing or malformed.
COHORT_TEST_API RendezvousPlan plan_rendezvous(const std::string& init_method, int rank, int world_size);

}  // namespace cohort::comm
