#include "cohort/dtensor/wrapper/layout.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

namespace cohort::dtensor {
namespace {

enum Kind : int64_t { kReplicated, kShard, kStrided, kPartial };

int64_t code_of(const Placement& placement) {
  constexpr int kKindBits = 2, kDimBits = 30;
  if (placement.is_replicate()) return kReplicated;
  if (placement.is_partial()) {
    return static_cast<int64_t>(std::hash<std::string>()(placement.reduce_op()) << kKindBits) | kPartial;
  }
  const auto cut = placement.is_shard() ? 0 : placement.split_factor();
  return (placement.is_shard() ? kShard : kStrided) | (placement.dim() << kKindBits) | (cut << kDimBits);
}

std::vector<int64_t> code_of(const DeviceMesh& mesh, const Placements& placements) {
  std::vector<int64_t> code{mesh.ndim()};
  for (const int64_t size : mesh.shape()) code.push_back(size);
  for (const auto& placement : placements) code.push_back(code_of(placement));
  return code;
}

}  // namespace

Layout::Layout(DeviceMesh on, Placements lying)
    : mesh(std::move(on)),
      placements(std::move(lying)),
      code(code_of(mesh, placements)),
      is_partial(has_partial(placements)) {}

bool has_partial(const Placements& placements) {
  return std::any_of(placements.begin(), placements.end(), [](const auto& one) { return one.is_partial(); });
}

}  // namespace cohort::dtensor
