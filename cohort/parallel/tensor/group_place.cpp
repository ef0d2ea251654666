#include "cohort/parallel/tensor/group_place.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/comm/group/group_backend.h"
#include "cohort/mesh/shard.h"

namespace cohort::parallel {

GroupPlace place_in(const Group& group) {
  if (!group && !is_initialized()) return {};
  TORCH_CHECK_VALUE(is_member(group), "Invalid process group specified");
  const auto& found = comm::resolve(group);
  if (found->getSize() == 1) return {};
  return {found, found->getRank(), found->getSize()};
}

std::string ranks_text(int64_t num_ranks) { return std::to_string(num_ranks) + (num_ranks == 1 ? " rank" : " ranks"); }

std::string chunks_text(int64_t size, int64_t num_ranks) {
  constexpr int64_t kMost = 8;
  std::string text = "ceil(" + std::to_string(size) + " / " + std::to_string(num_ranks) +
                     ") = " + std::to_string(mesh::chunk_range(size, num_ranks, 0).size()) + " for each of " +
                     ranks_text(num_ranks) + ", so they have ";
  for (int64_t rank = 0; rank < std::min(num_ranks, kMost); ++rank) {
    text += (rank > 0 ? ", " : "") + std::to_string(mesh::chunk_range(size, num_ranks, rank).size());
  }
  return num_ranks > kMost ? text + ", ..." : text;
}

}  // namespace cohort::parallel
