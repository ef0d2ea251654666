/// Passes the descriptor of shared memory from one rank to the others: through an abstract UNIX socket, which has no file either.
/// Only the ranks know its name; the kernel tells the user at the other end (SO_PEERCRED), and both sides refuse other users.
/// Only processes of one network namespace can connect.
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
  /// Called from time to time with the ranks that are missing. Returns why they cannot arrive, or an empty text. May be empty.
  std::function<std::string(const std::vector<int>&)> find_obstacle;
};

/// Sends `fd` to every other rank, from rank 0. Blocks until all have connected. Returns their process ids by rank; 0 for its
/// own.
base::Result<std::vector<int>> hand_over(const Meeting& meeting, const base::Fd& fd);
/// Receives the descriptor on the other ranks. Blocks until rank 0 has sent it.
base::Result<base::Fd> receive_handed_over(const Meeting& meeting);

}  // namespace cohort::shm
