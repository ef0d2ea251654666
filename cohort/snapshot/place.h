/// The place of this process in its job, for snapshots, as `cohort run` sets it in the environment.
#pragma once

#include <optional>
#include <string>

#include "cohort/base/error/result.h"

namespace cohort::snapshot {

/// The variable COHORT_SNAPSHOTS=NAME:LOCAL_RANK. (LOCAL_RANK itself is 0 everywhere with --virtual-local-rank.)
inline constexpr const char* kPlaceVariable = "COHORT_SNAPSHOTS";

struct Place {
  /// The name of the launcher's snapshot server.
  std::string server;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node = 0;
  int num_nodes = 1;
  /// The address of the round's store.
  std::string store_host;
  int store_port = 0;

  int first_rank() const { return rank - local_rank; }
};

/// Returns nothing without a launcher that keeps snapshots. Returns an error if variables contradict each other.
base::Result<std::optional<Place>> find_place();

std::string place_value(const std::string& server, int local_rank);

}  // namespace cohort::snapshot
