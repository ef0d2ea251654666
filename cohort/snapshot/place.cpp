#include "cohort/snapshot/place.h"

#include <fmt/format.h>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

Result<std::optional<Place>> find_place() {
  const auto value = base::get_env(kPlaceVariable);
  if (!value || value->empty()) return std::optional<Place>();
  const size_t colon = value->rfind(':');
  const auto local_rank = colon == std::string::npos ? std::nullopt : base::parse_int(value->substr(colon + 1));
  Place place{.server = value->substr(0, colon)};
  std::optional<Error> error;
  const auto number = [&error](const char* name, long long min) {
    const Result<long long> found = base::required_env_int(name, min, 1 << 24);
    if (!found && !error) error = found.error();
    return found ? static_cast<int>(*found) : 0;
  };
  place.rank = number("RANK", 0);
  place.world_size = number("WORLD_SIZE", 1);
  place.local_world_size = number("LOCAL_WORLD_SIZE", 1);
  place.node = number("GROUP_RANK", 0);
  place.num_nodes = number("GROUP_WORLD_SIZE", 1);
  place.store_port = number("MASTER_PORT", 1);
  place.store_host = base::get_env("MASTER_ADDR").value_or("");
  if (error) return *std::move(error);
  place.local_rank = static_cast<int>(local_rank.value_or(-1));
  if (place.store_host.empty() || place.local_rank < 0 || place.local_rank >= place.local_world_size ||
      place.first_rank() < 0 || place.first_rank() + place.local_world_size > place.world_size ||
      place.node >= place.num_nodes) {
    return Error(fmt::format("COHORT_SNAPSHOTS=\"{}\" does not fit RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, "
                             "GROUP_WORLD_SIZE and MASTER_ADDR",
                             *value))
        .with_hint("leave these variables as cohort run sets them");
  }
  return std::optional(std::move(place));
}

std::string place_value(const std::string& server, int local_rank) { return fmt::format("{}:{}", server, local_rank); }

}  // namespace cohort::snapshot
