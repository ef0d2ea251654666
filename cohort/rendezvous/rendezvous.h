/// Rendezvous: decides which nodes take part in a job, round after round. A node is one agent (`cohort run`) with its workers.
///
/// A round begins when enough nodes have arrived. It ends for all of them when a worker fails, or a node arrives, leaves or is
/// lost. Events report this:
/// happens arrives as events:
///
///     auto rendezvous = Rendezvous::start(settings);           // joins the first round
///     poll({(*rendezvous)->fd(), ...});
///     while (auto event = (*rendezvous)->next_event()) ...     // a Round: start workers; a RoundOver: stop them, join_next()
///
/// Semantics follow torch/distributed/elastic/rendezvous/dynamic_rendezvous.py and static_tcp_rendezvous.py of PyTorch 2.13.
/// Thread-safety: one thread at a time. An own thread communicates with the other nodes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/settings.h"

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

class Rendezvous {
 public:
  /// Joins the first round. If `settings` leave the address family open, COHORT_IP_FAMILY decides. Errors are those that can be
  /// found without waiting for others, such as an endpoint that cannot work.
  static base::Result<std::unique_ptr<Rendezvous>> start(const Settings& settings);
  /// Leaves as leave() does, unless the job has ended.
  virtual ~Rendezvous() = default;

  /// Readable while an event waits.
  virtual int fd() const = 0;
  virtual std::optional<Event> next_event() = 0;

  /// Reports that all workers of this node have ended with 0. RoundOver with kFinished follows when all nodes have reported this.
  virtual void report_success() = 0;
  /// Reports a failed worker of this node, which ends the round for all nodes. The job ends as well if no restart is left or
  /// `may_restart` is false. RoundOver follows on this node, too.
  virtual void report_failure(const std::string& why, bool may_restart) = 0;
  /// Joins the next round. Requires a RoundOver without job_ends, and that this node's workers have ended.
  virtual void join_next() = 0;
  /// Makes this node leave; the others may go on without it. Returns within a second.
  virtual void leave(const std::string& why) = 0;
};

}  // namespace cohort::rendezvous
