/// A trace with every kind of thing in it, at fixed times.
#pragma once

#include "cohort/shm/report/group_trace.h"

namespace cohort::test {

/// 2026-11-21 08:42:34.125 UTC.
constexpr int64_t kDumpTime = 1'795'250'554'125'000'000;
constexpr int64_t kSecond = 1'000'000'000;

/// Made `seconds_ago`; started 1 ms, completed 3 ms later, as far as `state` goes.
inline shm::CallRecord make_call(uint64_t number, shm::OpKind kind, shm::CallRecord::State state, double seconds_ago) {
  using State = shm::CallRecord::State;
  shm::CallRecord record;
  record.record_id = record.collective_seq_id = number;
  record.kind = kind;
  record.dtype = shm::DType::kFloat32;
  record.reduce_op = kind == shm::OpKind::kAllReduce ? shm::ReduceOp::kSum : shm::ReduceOp::kNone;
  record.num_inputs = record.num_outputs = 8;
  record.timeout_ms = 1'800'000;
  record.state = state;
  record.created_ns = kDumpTime - static_cast<int64_t>(seconds_ago * kSecond);
  if (state != State::kScheduled) record.started_ns = record.created_ns + 1'000'000;
  if (record.is_over()) record.finished_ns = record.created_ns + 3'000'000;
  record.thread_id = 77;
  record.call_site = "gpt+0x1a2b (main)";
  return record;
}

inline shm::RankTrace make_rank(int rank, std::vector<shm::CallRecord> records) {
  return {.rank = rank,
          .pid = 4711 + rank,
          .host = "n1",
          .presence = shm::RankTrace::Presence::kRuns,
          .records = std::move(records)};
}

/// Rank 0 waits in all_reduce #3, rank 1 ended after #2, rank 2 has left.
inline shm::ProcessTrace make_trace() {
  using shm::OpKind;
  using State = shm::CallRecord::State;
  shm::CallRecord send = make_call(1, OpKind::kSend, State::kScheduled, 20);
  send.is_p2p = true;
  send.record_id = 4;
  send.collective_seq_id = 3;
  send.p2p_seq_id = 1;
  send.root = 1;
  send.tag = 5;
  send.num_outputs = 0;
  send.call_site = "";
  shm::CallRecord broadcast = make_call(2, OpKind::kBroadcast, State::kCompleted, 41);
  broadcast.root = 0;
  shm::GroupTrace group;
  group.name = "0";
  group.description = "default_pg";
  group.global_ranks = {0, 1, 2};
  group.ranks = {make_rank(0, {make_call(1, OpKind::kAllReduce, State::kCompleted, 42), broadcast,
                               make_call(3, OpKind::kAllReduce, State::kStarted, 30.001), send}),
                 make_rank(1, {make_call(1, OpKind::kAllReduce, State::kCompleted, 42), broadcast}),
                 make_rank(2, {make_call(1, OpKind::kAllReduce, State::kFailed, 42)})};
  group.ranks[1].presence = shm::RankTrace::Presence::kGone;
  group.ranks[2].presence = shm::RankTrace::Presence::kLeft;
  return {.time_ns = kDumpTime,
          .pid = 4711,
          .rank = 0,
          .own_ranks = {0},
          .host = "n1",
          .reason = "signal 10 (SIGUSR1)",
          .groups = {group}};
}

}  // namespace cohort::test
