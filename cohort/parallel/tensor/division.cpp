#include "cohort/parallel/tensor/division.h"

#include <c10/util/Exception.h>

#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {
namespace {

// Lists the divisors of `size` that are at most `num_ranks`, in words.
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
  TORCH_CHECK_VALUE(size > 0, "[cohort] ", size, " ", what, " cannot be divided: there must be at least one");
  TORCH_CHECK_VALUE(size % num_ranks == 0, "[cohort] ", size, " ", what, " cannot be divided evenly among ",
                    parallel::ranks_text(num_ranks), ": ", size, " = ", size / num_ranks, " * ", num_ranks, " + ",
                    size % num_ranks, "\n  hint: take a multiple of ", num_ranks,
                    ", or a number of ranks that divides it: ", fewer_ranks(size, num_ranks));
  return size / num_ranks;
}

}  // namespace cohort::parallel
