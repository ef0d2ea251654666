/// The records that the nodes of a rendezvous write for each other, and their JSON. Private to this folder.
///
/// The store has two lists. With a *notice* a node tells the leader something: it has arrived, is ready for a round, is done, or
/// has left. *News* is for all nodes: who leads, that a round begins, that it is over. The first node that writes news at a place
/// of the list wins.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/rendezvous/rounds/round.h"

namespace cohort::rendezvous {

/// The place of a node's first notice in the list. Orders nodes by arrival.
using NodeId = int64_t;

struct Member {
  NodeId id = -1;
  Node node;
  /// Ranks are sorted by this name, then by the pid: --local-addr, else the host's name.
  std::string sort_name;
  /// The address of the store as this node sees it; empty if the store has no address.
  std::string store_address;
  /// From --node-rank; -1 with a dynamic rendezvous.
  int fixed_rank = -1;
  int max_restarts = 0;
};

struct Notice {
  enum class Kind {
    kCome,   ///< `member`, whose id is this notice's place, has arrived
    kReady,  ///< `id` waits for round `round`
    kDone,   ///< the workers of `id` have ended round `round` with 0
    kGone,   ///< `id` left because of `why`
    kNews,   ///< another node than the leader has written news
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
  /// In the order of their ranks.
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
  /// The leader; -1 if it has left: the first node that notices takes over.
  NodeId id = -1;
  /// The silent leader that it replaces; -1 if there is none.
  NodeId silent = -1;
};

using News = std::variant<LeadRecord, RoundRecord, OverRecord>;

/// The address at which the workers of a round meet.
struct WorkersPlace {
  std::string address;
  int port = 0;
  bool agent_hosts_store = true;
};

std::string to_text(const Notice& notice);
std::string to_text(const News& news);
std::string to_text(const WorkersPlace& place);
/// Parses a notice. Errors quote the text that is malformed.
base::Result<Notice> parse_notice(const std::string& text);
base::Result<News> parse_news(const std::string& text);
base::Result<WorkersPlace> parse_workers_place(const std::string& text);

/// Returns "node1", or "node1 (pid 4711)" if several nodes have that host.
std::string name_of(const Member& member, const std::vector<const Member*>& among);

}  // namespace cohort::rendezvous
