/// Rendezvous: decides which nodes take part in a job, round after round. A node is one agent (`cohort run`) with its workers.
///
/// A round begins when enough nodes have arrived. It ends for all of them when a worker fails, or a node arrives, leaves or is
/// lost. Events report this:
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

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/environment/settings.h"
#include "cohort/rendezvous/rounds/round.h"

namespace cohort::rendezvous {

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
