#include "cohort/comm/shm/session/session_transfers.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cohort::comm {

// Requires: the caller holds mutex_.
std::vector<SessionTransfers::Kept> SessionTransfers::take_finished() {
  const auto first = std::partition(kept_.begin(), kept_.end(), [](const auto& it) { return !it.transfer->is_done(); });
  std::vector<Kept> finished(std::make_move_iterator(first), std::make_move_iterator(kept_.end()));
  kept_.erase(first, kept_.end());
  return finished;
}

void SessionTransfers::keep(Kept transfer) {
  std::vector<Kept> finished;
  const std::lock_guard lock(mutex_);
  finished = take_finished();
  kept_.push_back(std::move(transfer));
}

size_t SessionTransfers::num_pending() {
  auto count = static_cast<size_t>(num_under_way_.load());
  std::vector<Kept> finished;
  const std::lock_guard lock(mutex_);
  finished = take_finished();
  for (const auto& each : kept_) count += each.is_pending;
  return count;
}

size_t SessionTransfers::num_lost() const {
  const std::lock_guard lock(mutex_);
  const auto is_lost = [](const auto& it) {
    return it.is_pending && (!it.transfer->is_done() || it.transfer->failure() != nullptr);
  };
  return static_cast<size_t>(std::count_if(kept_.begin(), kept_.end(), is_lost));
}

void SessionTransfers::clear() {
  std::vector<Kept> kept;
  const std::lock_guard lock(mutex_);
  kept.swap(kept_);
}

}  // namespace cohort::comm
