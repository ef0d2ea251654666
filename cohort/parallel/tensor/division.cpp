#include "cohort/parallel/tensor/division.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "cohort/base/text.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/mesh/shard.h"

namespace cohort {
namespace {

// What divides `size` and is no more than `num_ranks`, in words.
std::string fewer_ranks(int64_t size, int64_t num_ranks) {
  std::vector<std::string> numbers;
  for (int64_t n = 1; n < num_ranks; ++n) {
    if (size % n == 0) numbers.push_back(std::to_string(n));
  }
  if (numbers.size() == 1) return numbers[0];
  const auto last = numbers.back();
  numbers.pop_back();
  return base::join(numbers, ", ") + " or " + last;
}

}  // namespace

int64_t divided(int64_t size, const std::string& what, const Group& group) {
  const auto num_ranks = parallel::place_in(group).num_ranks;
  TORCH_CHECK_VALUE(size > 0 && size % num_ranks == 0, "[cohort] ", size, " ", what, " cannot be shared evenly by ",
                    parallel::ranks_text(num_ranks), ": ", size, " = ", size / num_ranks, " * ", num_ranks, " + ",
                    size % num_ranks, "\n  hint: take a multiple of ", num_ranks,
                    ", or as many ranks as divide it: ", fewer_ranks(std::max<int64_t>(size, 1), num_ranks));
  return size / num_ranks;
}

namespace parallel {

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
                     ") = " + std::to_string(chunk_range(size, num_ranks, 0).size()) + " for each of " +
                     ranks_text(num_ranks) + ", so they have ";
  for (int64_t rank = 0; rank < std::min(num_ranks, kMost); ++rank) {
    text += (rank > 0 ? ", " : "") + std::to_string(chunk_range(size, num_ranks, rank).size());
  }
  return num_ranks > kMost ? text + ", ..." : text;
}

}  // namespace parallel
}  // namespace cohort
