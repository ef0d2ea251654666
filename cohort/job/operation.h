/// One operation of a group on this rank: shown in errors, and compared between ranks to find where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::job {

/// Separates a call from its purpose.
inline constexpr std::string_view kWhichIs = ", which is ";

struct Operation {
  std::string name;  ///< "all_reduce"
  /// The position among this group's collectives on this rank, from 1. Sends and receives are counted separately.
  uint64_t sequence = 0;
  bool point_to_point = false;
  std::string group;  ///< "default_pg"
  int rank = -1;      ///< in the group
  int world_size = 0;
  std::string host;
  std::string backend;  ///< "gloo"
  int64_t num_bytes = 0;
  std::string dtype;         ///< "float32"; empty if there is no tensor
  std::string shape;         ///< "[2, 3]"; must agree on every rank, so it is empty if ranks may differ (uneven splits)
  int root = -1;             ///< group rank; for a send or receive the peer; -1 if there is none
  std::string reduce_op;     ///< "SUM"; empty if there is none
  std::string_view purpose;  ///< why the library calls it, in static storage; empty for the program's own calls
};

}  // namespace cohort::job
