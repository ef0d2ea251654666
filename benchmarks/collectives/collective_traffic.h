/// The roof's model: the bytes that a rank must at least read and write for an operation, if waiting cost nothing. Pure.
///
/// N is the case's size, P the number of ranks. Private memory: a rank cannot access the others' tensors, so data between ranks
/// is written to a staging area and read from there. Staging is small and stays in the rank's own cache; tensors do not.
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
/// Shared memory: each rank reads and writes all ranks' tensors, one P-th of the work.
///
///     all_reduce       reads N/P of P tensors, writes N/P of P tensors
///     reduce           reads N/P of P tensors, writes N/P of one; reduce_scatter likewise
///     broadcast        reads N/P of one, writes N/P of P-1; all_gather: writes N/P of P
///     all_to_all       reads N, writes N
///     send_recv        there and back, both ranks work on each message: reads N, writes N
///
/// Not counted: a staged byte, or another rank's tensor, may be in the other core's cache and must be fetched from there. So no
/// implementation reaches the roof.
#pragma once

#include <cstddef>
#include <vector>

#include "benchmarks/collectives/collective_case.h"

namespace cohort::bench {

/// Streams of equal length: reads their elements, sums them up, and writes the sum to each target.
struct Move {
  size_t num_bytes = 0;
  /// The offsets in the input of the streams to read.
  std::vector<size_t> reads;
  int num_staged_reads = 0;
  /// The offsets in the output (or the input, for in-place operations) of the streams to write.
  std::vector<size_t> writes;
  int num_staged_writes = 0;
};

enum class TrafficPlan { kWhole, kCut };

/// Returns the moves of one call on one rank. If the model has only one plan, both plans are the same.
std::vector<Move> plan_traffic(const CollectiveCase& what, int rank, TrafficPlan plan);
bool has_two_plans(const CollectiveCase& what);

/// The bytes of one call on one rank, including staging.
struct Traffic {
  size_t loaded = 0;
  size_t stored = 0;
};
Traffic count_traffic(const std::vector<Move>& moves);

}  // namespace cohort::bench
