#include "cohort/parallel/context/passing_blocks.h"

#include <ATen/ATen.h>

#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/functional/functional_collectives.h"

namespace cohort::parallel {
namespace {

at::Tensor packed_pair(const TensorPair& pair) { return at::cat({pair.first.flatten(), pair.second.flatten()}); }

TensorPair unpacked(const at::Tensor& packed, const TensorPair& like) {
  const auto first = like.first.numel();
  return {packed.narrow(0, 0, first).view(like.first.sizes()),
          packed.narrow(0, first, like.second.numel()).view(like.second.sizes())};
}

// Sends to the next rank and receives from the one before. The result is still in flight.
at::Tensor passed_on(const at::Tensor& packed, const GroupPlace& place) {
  std::vector<int64_t> next(place.num_ranks);
  for (int64_t rank = 0; rank < place.num_ranks; ++rank) next[rank] = (rank + 1) % place.num_ranks;
  return functional::permute_tensor(packed, next, place.group);
}

int64_t source_of(const GroupPlace& place, int64_t step) {
  return (place.rank - step + place.num_ranks) % place.num_ranks;
}

}  // namespace

PassingBlocks::PassingBlocks(const GroupPlace& place, RotateMethod method, const TensorPair& own)
    : place_(place), method_(method), own_(own) {}

TensorPair PassingBlocks::next() {
  const auto step = step_++;
  if (place_.num_ranks == 1) return own_;
  if (method_ == RotateMethod::kAllGather) {
    if (step == 0) on_its_way_ = functional::all_gather_single(packed_pair(own_), 0, place_.group);
    if (step == 0) return own_;
    const auto all = functional::wait_tensor(on_its_way_).view({place_.num_ranks, -1});
    return unpacked(all[source_of(place_, step)], own_);
  }
  const auto now = step == 0 ? packed_pair(own_) : functional::wait_tensor(on_its_way_);
  if (step + 1 < place_.num_ranks) on_its_way_ = passed_on(now, place_);
  return step == 0 ? own_ : unpacked(now, own_);
}

PassingGradients::PassingGradients(const GroupPlace& place, RotateMethod method, const TensorPair& own,
                                   at::ScalarType dtype)
    : place_(place), method_(method), shapes_(own) {
  const auto numbers = own.first.numel() + own.second.numel();
  const auto pairs = method == RotateMethod::kAllGather ? place.num_ranks : 1;
  packed_ = at::zeros({pairs, numbers}, own.first.options().dtype(dtype));
}

TensorPair PassingGradients::next() {
  const auto step = step_++;
  if (method_ == RotateMethod::kAllGather) return unpacked(packed_[source_of(place_, step)], shapes_);
  if (step > 0) packed_ = functional::wait_tensor(passed_on(packed_.flatten(), place_)).view({1, -1});
  return unpacked(packed_[0], shapes_);
}

TensorPair PassingGradients::finish() {
  if (place_.num_ranks == 1) return unpacked(packed_[0], shapes_);
  if (method_ == RotateMethod::kAllToAll) {
    return unpacked(functional::wait_tensor(passed_on(packed_.flatten(), place_)), shapes_);
  }
  const auto own = at::empty({packed_.size(1)}, packed_.options());
  reduce_scatter_single(own, packed_, {.group = place_.group});
  return unpacked(own, shapes_);
}

}  // namespace cohort::parallel
