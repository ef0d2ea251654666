/// RendezvousPlan: the host and port, or the file, at which ranks meet, with rank and world size, from an init_method and the
/// environment. Follows torch/distributed/rendezvous.py. Pure, except that it reads the environment.
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
  bool is_agents_store = false;  ///< kTcp: the ranks' agent runs it
  /// kTcp: the source of host and port, for texts: "MASTER_ADDR and MASTER_PORT" or "init_method".
  std::string source;
  std::string path;  ///< kFile
};

/// Returns "host:port" of a store that rank 0 hosts and ends with its group; "" for files and for stores of agents.
std::string place_of_rank_0(const RendezvousPlan& plan);

/// `rank` and `world_size`: -1 means "not given"; other values override URL and environment.
/// Throws c10::ValueError with PyTorch's texts; the message names the variable or part of the URL that is missing or malformed.
COHORT_TEST_API RendezvousPlan plan_rendezvous(const std::string& init_method, int rank, int world_size);

}  // namespace cohort::comm
