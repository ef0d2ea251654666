/// The roof's model: which bytes a rank must at least read and write for an operation, if waiting cost nothing. Pure.
///
/// N is the case's size, P the number of ranks. Private memory: a rank cannot reach the others' tensors, so what passes between
/// ranks is written to a staging area and read from there. Staging is small and stays in the rank's own cache; tensors do not.
///
///     all_reduce       whole: stage N; out N = own + P-1 staged
///                      cut:   stage N(P-1)/P; out and stage N/P = own + P-1 staged; out N(P-1)/P from staged
///     reduce           whole: stage N (root: out N = own + P-1 staged)
///                      cut:   stage N(P-1)/P; stage (root: out) N/P = own + P-1 staged; root: out N(P-1)/P from staged
///     reduce_scatter   stage N(P-1)/P; out N/P = own + P-1 staged
///     broadcast        root: stage N; others: out N from staged
///     all_gather       out and stage N/P; out N(P-1)/P from staged
///     all_to_all       out N/P; stage N(P-1)/P; out N(P-1)/P from staged
///     send_recv        there and back: stage N; out N from staged
///
/// Shared memory: a rank reads and writes all ranks' tensors, each its P-th of the work.
///
///     all_reduce       reads N/P of P tensors, writes N/P of P tensors
///     reduce           reads N/P of P tensors, writes N/P of one; reduce_scatter likewise
///     broadcast        reads N/P of one, writes N/P of P-1; all_gather: writes N/P of P
///     all_to_all       reads N, writes N
///     send_recv        there and back, both ranks work on each message: reads N, writes N
///
/// Not counted: that a staged byte, or another rank's tensor, may lie in the other core's cache and must be fetched from
/// there. So nothing real reaches the roof.
#pragma once

#include <cstddef>
#include <vector>

#include "benchmarks/collectives/collective_case.h"

namespace cohort::bench {

/// Streams of equal length, walked side by side: their elements are read, added up, and the sum is written to each target.
struct Move {
  size_t num_bytes = 0;
  /// Where in the input the streams begin that are read.
  std::vector<size_t> reads;
  int num_staged_reads = 0;
  /// Where in the output (or the input, for operations in place) the streams begin that are written.
  std::vector<size_t> writes;
  int num_staged_writes = 0;
};

enum class TrafficPlan { kWhole, kCut };

/// The moves of one call on one rank. Where the model has one plan only, both are that one.
std::vector<Move> plan_traffic(const CollectiveCase& what, int rank, TrafficPlan plan);
bool has_two_plans(const CollectiveCase& what);

/// Bytes of one call on one rank, staging included.
struct Traffic {
  size_t loaded = 0;
  size_t stored = 0;
};
Traffic count_traffic(const std::vector<Move>& moves);

}  // namespace cohort::bench
