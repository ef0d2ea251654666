/// SessionTransfers: a session's sends and receives under way, and the memory of those that nobody waits for, which is kept until
/// they are done. Memory is released without a lock, because it may hold the last reference to a tensor.
/// Thread-safety: every function may be called from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

#include "cohort/shm/transfer/exchange.h"

namespace cohort::comm {

class SessionTransfers {
 public:
  struct Kept {
    shm::TransferPtr transfer;
    at::Tensor memory;
    bool is_pending = false;  ///< whether it counts as an operation of the program
  };

  /// Changes the number of transfers under way.
  void add(int difference) { num_under_way_.fetch_add(difference); }
  void keep(Kept transfer);

  size_t num_pending();
  /// Returns the number of kept sends that failed, and of receives that nobody will see.
  size_t num_lost() const;
  /// Releases everything that is kept.
  void clear();

 private:
  std::vector<Kept> take_finished();

  std::atomic<int> num_under_way_ = 0;
  mutable std::mutex mutex_;
  std::vector<Kept> kept_;
};

}  // namespace cohort::comm
