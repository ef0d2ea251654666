/// Describes why a send or receive failed. Pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cohort/shm/terms/failure.h"
#include "cohort/shm/transfer/channel.h"

namespace cohort::shm {

/// Returns a table of what the sender sends and what the receiver expects.
Outcome transfer_mismatch(int sender, int receiver, const Refusal& refusal);

/// The state of a transfer whose timeout is over.
struct TransferState {
  int rank = 0;
  int peer = 0;  ///< kAnySource if there is none yet
  int32_t tag = 0;
  uint64_t num_bytes = 0;
  uint64_t num_moved = 0;
  bool is_streaming = false;
  std::chrono::milliseconds timeout{};
};
Outcome send_timeout(const TransferState& state);
/// `offers` are the peers that offer messages, with their tags, none of which is the expected one.
Outcome receive_timeout(const TransferState& state, const std::vector<std::pair<int, std::vector<int32_t>>>& offers);

/// Returns "tag 3", "tags 3 and 4", "tags 1, 2, 3, 4 and 17 more".
std::string list_tags(const std::vector<int32_t>& tags);

}  // namespace cohort::shm
