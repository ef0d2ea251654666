/// One operation of a group on this rank: what errors show, and what ranks compare to find where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::job {

/// Stands between a call and its purpose.
inline constexpr std::string_view kWhichIs = ", which is ";

struct Operation {
  std::string name;  ///< "all_reduce"
  /// Position among this group's collectives on this rank, from 1; sends and receives are counted apart.
  uint64_t sequence = 0;
  bool point_to_point = false;
  std::string group;  ///< "default_pg"
  int rank = -1;      ///< in the group
  int world_size = 0;
  std::string host;
  std::string backend;  ///< "gloo"
  int64_t num_bytes = 0;
  std::string dtype;      ///< "float32"; empty where there is no tensor
  std::string shape;      ///< "[2, 3]"; what must agree on every rank, so empty where ranks may differ (uneven splits)
  int root = -1;          ///< group rank, of a send or receive the peer; -1 where there is none
  std::string reduce_op;  ///< "SUM"; empty where there is none
  std::string_view purpose;  ///< for what the library calls it, of static storage; empty: the program's own call
};

}  // namespace cohort::job
