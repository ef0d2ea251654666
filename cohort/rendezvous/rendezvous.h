/// Rendezvous: which nodes take part in a job, round after round. A node is one agent (`cohort run`) with its workers.
///
/// A round begins when enough nodes have come and ends for all of them when a worker fails, a node comes, goes or is lost. What
/// happens arrives as events:
///
///     auto rendezvous = Rendezvous::start(settings);           // joins the first round
///     poll({(*rendezvous)->fd(), ...});
///     while (auto event = (*rendezvous)->next_event()) ...     // a Round: start workers; a RoundOver: stop them, join_next()
///
/// Semantics follow torch/distributed/elastic/rendezvous/dynamic_rendezvous.py and static_tcp_rendezvous.py of PyTorch 2.13.
/// Thread-safety: one thread at a time. A thread of its own keeps in touch with the other nodes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/settings.h"

namespace cohort::rendezvous {

/// What a node says of itself.
struct Node {
  /// The host's name, for people.
  std::string host;
  /// Under which the other nodes reach it.
  std::string address;
  int pid = 0;
  int local_world_size = 1;
  std::string role = "default";
  /// Settings::public_key of this node.
  std::string public_key = {};
};

/// The same on every node, but for node_rank.
struct Round {
  /// Random; the same in all rounds of a job, and no other job's, not even one's with the same run id.
  std::string job;
  /// Counts the rounds of the job, from 0.
  int number = 0;
  /// Rounds so far that followed a worker's failure, and how many there may be (as node 0 says).
  int restart_count = 0;
  int max_restarts = 0;
  /// This node's place in `nodes`.
  int node_rank = 0;
  std::vector<Node> nodes;
  /// The store of this round's workers: empty at its start, used by no other round. Node 0 hosts it, unless
  /// agent_hosts_store is false: then worker 0 does, at this port.
  std::string store_address;
  int store_port = 0;
  bool agent_hosts_store = true;
};

struct RoundOver {
  enum class Reason {
    kFinished,      ///< every node's workers have ended with 0
    kWorkerFailed,  ///< a worker failed, here or elsewhere
    kNodesWaiting,  ///< nodes have arrived that should take part
    kNodeLeft,      ///< a node was told to stop
    kNodeLost,      ///< a node has been silent for too long
    kClosed,        ///< the job was ended by another node
  };
  Reason reason = Reason::kFinished;
  /// A sentence: "rank 3 (pid 4711) on node1 failed with exit code 1".
  std::string why;
  /// Who caused it; -1 if that is no node of the round.
  int node_rank = -1;
  /// False: another round follows, with whoever calls join_next().
  bool job_ends = false;
};

/// An Error is final: there will be no more events.
using Event = std::variant<Round, RoundOver, base::Error>;

class Rendezvous {
 public:
  /// Joins the first round. COHORT_IP_FAMILY counts where `settings` leave the family open.
  /// Errors: what can be told without waiting for others, such as an endpoint that cannot work.
  static base::Result<std::unique_ptr<Rendezvous>> start(const Settings& settings);
  /// Says good-bye as leave() does, unless the job has ended.
  virtual ~Rendezvous() = default;

  /// Readable while an event waits.
  virtual int fd() const = 0;
  virtual std::optional<Event> next_event() = 0;

  /// This node's workers have all ended with 0. RoundOver with kFinished follows when all nodes have said so.
  virtual void report_success() = 0;
  /// A worker of this node failed: the round is over for all. The job ends as well if no restart is left or `may_restart` is
  /// false. RoundOver follows here as well.
  virtual void report_failure(const std::string& why, bool may_restart) = 0;
  /// After a RoundOver without job_ends, once this node's workers are gone.
  virtual void join_next() = 0;
  /// This node goes; the others may go on without it. Returns within a second.
  virtual void leave(const std::string& why) = 0;
};

}  // namespace cohort::rendezvous
