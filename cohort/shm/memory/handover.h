/// How the descriptor of shared memory gets from one rank to the others: over an abstract UNIX socket, which has no file
/// either. The name is known to the ranks alone; the kernel says which user is at the other end (SO_PEERCRED), and both
/// sides refuse others. Only processes of one network namespace can connect.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::shm {

struct Meeting {
  std::string address;
  int rank = 0;
  int world_size = 1;
  std::chrono::steady_clock::time_point deadline;
  /// Called now and then with the ranks that are waited for: why they cannot come, or an empty text. May be empty.
  std::function<std::string(const std::vector<int>&)> find_obstacle;
};

/// On rank 0: gives `fd` to every other rank. Blocks until all have come. Returns their process ids, by rank; 0 for its own.
base::Result<std::vector<int>> hand_over(const Meeting& meeting, const base::Fd& fd);
/// On the others: blocks until rank 0 has given it.
base::Result<base::Fd> receive_handed_over(const Meeting& meeting);

}  // namespace cohort::shm
