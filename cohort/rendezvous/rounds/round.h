/// A round of a job, who takes part in it, and how it ended.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::rendezvous {

/// A node's description of itself.
struct Node {
  /// The host's name, for messages.
  std::string host;
  /// The address under which other nodes reach it.
  std::string address;
  int pid = 0;
  int local_world_size = 1;
  std::string role = "default";
  /// The Settings::public_key of this node.
  std::string public_key = {};
};

/// A round. It is the same on every node, except for node_rank.
struct Round {
  /// A random id, the same in all rounds of a job. Every job has another one, even with the same run id.
  std::string job;
  /// The number of the round in the job, from 0.
  int number = 0;
  /// The number of rounds so far that followed a worker's failure, and the limit for it (node 0's setting).
  int restart_count = 0;
  int max_restarts = 0;
  /// The index of this node in `nodes`.
  int node_rank = 0;
  std::vector<Node> nodes;
  /// The store of this round's workers: empty at its start, and used by no other round. Node 0 hosts it; if agent_hosts_store is
  /// false, worker 0 must host it at this port.
  std::string store_address;
  int store_port = 0;
  bool agent_hosts_store = true;
};

struct RoundOver {
  enum class Reason {
    kFinished,      ///< the workers of every node have ended with 0
    kWorkerFailed,  ///< a worker failed, on this node or another
    kNodesWaiting,  ///< nodes have arrived that should take part
    kNodeLeft,      ///< a node was told to stop
    kNodeLost,      ///< a node has been silent for too long
    kClosed,        ///< the job was ended by another node
  };
  Reason reason = Reason::kFinished;
  /// A sentence, such as "rank 3 (pid 4711) on node1 failed with exit code 1".
  std::string why;
  /// The node that caused it; -1 if it is not a node of the round.
  int node_rank = -1;
  /// Whether the job ends. If not, another round follows with the nodes that call join_next().
  bool job_ends = false;
};

/// An event. An Error is final: no more events follow.
using Event = std::variant<Round, RoundOver, base::Error>;

}  // namespace cohort::rendezvous
