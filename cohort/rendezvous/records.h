/// What the nodes of a rendezvous write for each other, and its JSON. Private to this folder.
///
/// Two lists live in the store. A *notice* is what one node tells the leader: it has come, is ready for a round, is done, has
/// gone. A *news* is what all must know: who leads, that a round begins, that it is over. The first who writes news at a place
/// of the list wins.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/rendezvous.h"

namespace cohort::rendezvous {

/// The place of a node's first notice in the list; orders nodes by arrival.
using NodeId = int64_t;

struct Member {
  NodeId id = -1;
  Node node;
  /// What ranks are sorted by before the pid: --local-addr, else the host's name.
  std::string sort_name;
  /// Under which it reached the store; empty where the store has no address.
  std::string store_address;
  /// Of --node-rank; -1 with a dynamic rendezvous.
  int fixed_rank = -1;
  int max_restarts = 0;
};

struct Notice {
  enum class Kind {
    kCome,   ///< `member`, whose id is this notice's place
    kReady,  ///< `id` waits for round `round`
    kDone,   ///< the workers of `id` have ended round `round` with 0
    kGone,   ///< `id` left because of `why`
    kNews,   ///< there is news, written by another than the leader
  };
  Kind kind = Kind::kNews;
  NodeId id = -1;
  int round = 0;
  std::string why;
  Member member;
};

struct RoundRecord {
  int number = 0;
  int restart_count = 0;
  int max_restarts = 0;
  /// By rank.
  std::vector<Member> members;
};

struct OverRecord {
  int round = 0;
  RoundOver::Reason reason = RoundOver::Reason::kFinished;
  std::string why;
  NodeId id = -1;
  bool job_ends = false;
};

struct LeadRecord {
  /// Nobody's if the leader has left: the first node that notices takes over.
  NodeId id = -1;
  /// The one it takes over from because that is silent.
  NodeId silent = -1;
};

using News = std::variant<LeadRecord, RoundRecord, OverRecord>;

/// Where the workers of a round meet.
struct WorkersPlace {
  std::string address;
  int port = 0;
  bool agent_hosts_store = true;
};

std::string to_text(const Notice& notice);
std::string to_text(const News& news);
std::string to_text(const WorkersPlace& place);
/// Errors quote what cannot be read.
base::Result<Notice> parse_notice(const std::string& text);
base::Result<News> parse_news(const std::string& text);
base::Result<WorkersPlace> parse_workers_place(const std::string& text);

/// "node1" or, where several nodes have that host, "node1 (pid 4711)".
std::string name_of(const Member& member, const std::vector<const Member*>& among);

}  // namespace cohort::rendezvous
