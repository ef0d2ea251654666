/// Why a send or receive failed, in words. Pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cohort/shm/terms/failure.h"
#include "cohort/shm/transfer/channel.h"

namespace cohort::shm {

/// A table of who sends what and who expects what.
Outcome transfer_mismatch(int sender, int receiver, const Refusal& refusal);

/// What a transfer that ran out of time had reached.
struct TransferState {
  int rank = 0;
  int peer = 0;  ///< kAnySource: none yet
  int32_t tag = 0;
  uint64_t num_bytes = 0;
  uint64_t num_moved = 0;
  bool is_streaming = false;
  std::chrono::milliseconds timeout{};
};
Outcome send_timeout(const TransferState& state);
/// `offers`: the peers that offer messages, and their tags, none of which is the one waited for.
Outcome receive_timeout(const TransferState& state, const std::vector<std::pair<int, std::vector<int32_t>>>& offers);

/// "tag 3", "tags 3 and 4", "tags 1, 2, 3, 4 and 17 more".
std::string list_tags(const std::vector<int32_t>& tags);

}  // namespace cohort::shm
