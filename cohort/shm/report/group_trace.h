/// GroupTrace: what the ranks of a group did last and do now, as plain structs. Made by read_trace.h, shown by to_text, to_json
/// and to_chrome_trace.
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

  /// From 1, in the order of the rank's calls on this group; sends and receives and collectives together.
  uint64_t record_id = 0;
  /// Collectives so far; sends and receives so far. Both with this one, where it counts.
  uint64_t collective_seq_id = 0;
  uint64_t p2p_seq_id = 0;
  OpKind kind = OpKind::kNone;
  DType dtype = DType::kBytes;
  ReduceOp reduce_op = ReduceOp::kNone;
  bool is_p2p = false;
  /// Or the peer; -1: none.
  int root = -1;
  int tag = 0;
  uint64_t num_inputs = 0;
  uint64_t num_outputs = 0;
  int64_t timeout_ms = 0;
  State state = State::kScheduled;
  int64_t created_ns = 0;
  std::optional<int64_t> started_ns;
  /// Completed or failed.
  std::optional<int64_t> finished_ns;
  int thread_id = 0;
  /// "train_gpt+0x1a2b (main)"; "" if unknown.
  std::string call_site;

  bool is_over() const { return state == State::kCompleted || state == State::kFailed; }
  /// The number that ranks agree on: of the collective, or of the send or receive.
  uint64_t seq_id() const { return is_p2p ? p2p_seq_id : collective_seq_id; }
  bool operator==(const CallRecord&) const = default;
};

/// "scheduled", "started", "completed", "failed".
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

/// "runs", "has left the group", "is gone", "never arrived".
const char* name_of(RankTrace::Presence presence);

struct GroupTrace {
  /// As in c10d: a name that is the same on all ranks, such as "0", and one for people, "default_pg".
  std::string name;
  std::string description;
  /// The rank in the job of each rank of the group.
  std::vector<int> global_ranks;
  std::vector<RankTrace> ranks;
};

/// All groups of a process at one time.
struct ProcessTrace {
  int64_t time_ns = 0;
  int pid = 0;
  /// In the job; -1: the process is several ranks, or does not know.
  int rank = -1;
  /// The ranks of the job that this process is: several where ranks are threads.
  std::vector<int> own_ranks;
  std::string host;
  /// Why this was written, "signal 10 (SIGUSR1)"; "" for a function call.
  std::string reason;
  std::vector<GroupTrace> groups;
};

}  // namespace cohort::shm
