/// GroupTrace: the last and current operations of a group's ranks, as plain structs. read_trace.h makes it; to_text, to_json and
/// to_chrome_trace format it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/shm/terms/types.h"

namespace cohort::shm {

/// One operation of one rank. Times are nanoseconds since the Unix epoch.
struct CallRecord {
  enum class State { kScheduled, kStarted, kCompleted, kFailed };

  /// From 1, in the order of the rank's calls on this group, with sends, receives and collectives counted together.
  uint64_t record_id = 0;
  /// The numbers of collectives, and of sends and receives, so far. Both include this operation if it is of that kind.
  uint64_t collective_seq_id = 0;
  uint64_t p2p_seq_id = 0;
  OpKind kind = OpKind::kNone;
  DType dtype = DType::kBytes;
  ReduceOp reduce_op = ReduceOp::kNone;
  bool is_p2p = false;
  /// The root, or the peer; -1 if there is none.
  int root = -1;
  int tag = 0;
  uint64_t num_inputs = 0;
  uint64_t num_outputs = 0;
  int64_t timeout_ms = 0;
  State state = State::kScheduled;
  int64_t created_ns = 0;
  std::optional<int64_t> started_ns;
  /// The time when it completed or failed.
  std::optional<int64_t> finished_ns;
  int thread_id = 0;
  /// "train_gpt+0x1a2b (main)"; "" if unknown.
  std::string call_site;

  bool is_over() const { return state == State::kCompleted || state == State::kFailed; }
  /// The number that ranks agree on: of the collective, or of the send or receive.
  uint64_t seq_id() const { return is_p2p ? p2p_seq_id : collective_seq_id; }
  bool operator==(const CallRecord&) const = default;
};

/// Returns "scheduled", "started", "completed" or "failed".
const char* name_of(CallRecord::State state);

struct RankTrace {
  enum class Presence { kAbsent, kRuns, kLeft, kGone };

  int rank = 0;
  int pid = 0;
  std::string host;
  Presence presence = Presence::kRuns;
  /// In the order of record_id.
  std::vector<CallRecord> records;
};

/// Returns "runs", "has left the group", "is gone" or "never arrived".
const char* name_of(RankTrace::Presence presence);

struct GroupTrace {
  /// The name that is the same on all ranks, such as "0", and one for people, "default_pg", as in c10d.
  std::string name;
  std::string description;
  /// The global rank of each rank of the group.
  std::vector<int> global_ranks;
  std::vector<RankTrace> ranks;
};

/// All groups of a process at one time.
struct ProcessTrace {
  int64_t time_ns = 0;
  int pid = 0;
  /// The global rank; -1 if the process is several ranks, or does not know it.
  int rank = -1;
  /// The global ranks of this process: several if ranks are threads.
  std::vector<int> own_ranks;
  std::string host;
  /// The reason for the dump, "signal 10 (SIGUSR1)"; "" for a function call.
  std::string reason;
  std::vector<GroupTrace> groups;
};

}  // namespace cohort::shm
