#include "cohort/parallel/fsdp/agreement.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/watch/throw_failure.h"

namespace cohort::fsdp {
namespace {

Fact fact_at(const std::vector<std::string>& words, size_t index) {
  if (index >= words.size()) return {"", "nothing"};
  return {words[index], words[index + 1]};
}

// A rank's words are its problem, then the names and values of its facts.
std::string difference(const std::vector<std::string>& first, const std::vector<std::string>& other, int first_rank,
                       int other_rank) {
  for (size_t i = 1; i < std::max(first.size(), other.size()); i += 2) {
    const auto one = fact_at(first, i);
    const auto two = fact_at(other, i);
    if (one.name == two.name && one.value == two.value) continue;
    const auto& name = one.name.empty() ? two.name : one.name;
    return fmt::format("fully_shard: the ranks differ: {} is {} on rank {}, but {} on rank {}", name, one.value,
                       first_rank, two.value, other_rank);
  }
  return "";
}

// The first problem that some rank has, or else the first difference. The same on all ranks of the group.
std::string first_problem(const Facts& facts, const std::string& own, const Group& group) {
  if (group->getSize() == 1) return own;
  std::vector<std::string> words = {own};
  for (const auto& [name, value] : facts) {
    words.push_back(name);
    words.push_back(value);
  }
  ObjectList gathered(static_cast<size_t>(group->getSize()));
  all_gather_object(gathered, c10::IValue(words), {.group = group});
  std::vector<std::vector<std::string>> all;
  for (const auto& object : gathered) {
    auto& texts = all.emplace_back();
    for (const auto& text : object.toListRef()) texts.push_back(text.toStringRef());
    if (!texts.front().empty()) return texts.front();
  }
  for (size_t rank = 1; rank < all.size(); ++rank) {
    auto found = difference(all.front(), all[rank], number_of(group, 0), number_of(group, rank));
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

int number_of(const Group& group, size_t rank) {
  const auto own = static_cast<int>(rank);
  if (!is_initialized()) return own;
  try {
    return get_global_rank(group, own);
  } catch (const c10::Error&) {  // made by somebody else
    return own;
  }
}

void agree(const Facts& facts, const std::exception_ptr& own, const MeshGroups& groups) {
  std::string problem;
  if (own) {
    const auto rank = static_cast<size_t>(groups.shards->getRank());
    problem = fmt::format("fully_shard failed on rank {}: {}", number_of(groups.shards, rank), comm::text_of(own));
  }
  problem = first_problem(facts, problem, groups.shards);
  if (groups.replicas) problem = first_problem(facts, problem, groups.replicas);  // which pass it on to theirs
  if (own) std::rethrow_exception(own);
  TORCH_CHECK(problem.empty(), problem);
}

}  // namespace cohort::fsdp
