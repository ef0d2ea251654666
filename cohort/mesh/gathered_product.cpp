#include "cohort/mesh/gathered_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "cohort/base/machine/cpu.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/mesh/purpose.h"

namespace cohort::mesh {
namespace {

constexpr int64_t kPiecesToOverlap = 4;

// A gather that runs: the same range of positions, counted from the begin of its share, from each rank.
struct Piece {
  IndexRange positions;
  at::Tensor parts;  // [ranks, outer, positions, features]; shorter shares are padded
  WorkPtr work;
};

std::vector<Piece> start_gathers(const GatherInPieces& how, const at::Tensor& own) {
  const comm::CalledFor purpose(comm::CalledFor::current_or(kRedistribution));
  int64_t longest = 0;
  for (const auto& share : how.shares) longest = std::max(longest, share.size());
  const auto padded = pad_tensor(own, 1, longest - own.size(1));
  std::vector<Piece> pieces;
  for (int64_t i = 0; i < how.num_pieces; ++i) {
    Piece piece{.positions = chunk_range(longest, how.num_pieces, i)};
    if (piece.positions.size() == 0) break;
    const auto part = padded.narrow(1, piece.positions.begin, piece.positions.size()).contiguous();
    auto sizes = part.sizes().vec();
    sizes.insert(sizes.begin(), static_cast<int64_t>(how.shares.size()));
    piece.parts = at::empty(sizes, part.options());
    piece.work = all_gather_single(piece.parts, part, {.group = how.group, .async_op = true});
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// A tensor [outer, positions, features], put together from parts [outer, some positions, features].
class JoinedTensor {
 public:
  JoinedTensor(const at::Tensor& like, int64_t num_positions)
      : tensor(at::empty({like.size(0), num_positions, like.size(-1)}, like.options())) {}
  void put(const at::Tensor& part, int64_t begin, int64_t size) const {
    if (size > 0) tensor.narrow(1, begin, size).copy_(part.narrow(1, 0, size));
  }
  const at::Tensor tensor;
};

}  // namespace

GatheredProduct multiply_while_gathering(const GatherInPieces& how, const at::Tensor& own, const Multiply& multiply) {
  auto pieces = start_gathers(how, own);
  const int64_t own_rank = how.group->getRank(), num_ranks = how.group->getSize();
  int64_t num_positions = 0;
  for (const auto& share : how.shares) num_positions += share.size();
  const auto own_product = multiply(own.unsqueeze(0))[0];
  const JoinedTensor gathered(own, num_positions), product(own_product, num_positions);
  const auto& own_share = how.shares[own_rank];
  gathered.put(own, own_share.begin, own_share.size());
  product.put(own_product, own_share.begin, own_share.size());
  for (auto& piece : pieces) {
    piece.work->wait();
    // As few products as possible, since each reads all of the second factor.
    for (const IndexRange ranks : {IndexRange{0, own_rank}, IndexRange{own_rank + 1, num_ranks}}) {
      if (ranks.size() == 0) continue;
      const auto rows = piece.parts.narrow(0, ranks.begin, ranks.size()), products = multiply(rows);
      for (int64_t i = 0; i < ranks.size(); ++i) {
        const auto& share = how.shares[ranks.begin + i];
        const auto size = std::min(piece.positions.end, share.size()) - piece.positions.begin;
        gathered.put(rows[i], share.begin + piece.positions.begin, size);
        product.put(products[i], share.begin + piece.positions.begin, size);
      }
    }
    piece = {};  // frees its memory for the next piece's product
  }
  return {gathered.tensor, product.tensor};
}

int64_t pieces_for_cores(const Group& group, c10::DeviceType device) {
  const auto wanted =
      comm::or_throw_value(base::env_int("COHORT_GATHER_PIECES", 1, std::numeric_limits<int32_t>::max()));
  const auto local_world_size = base::env_int("LOCAL_WORLD_SIZE");
  const int64_t on_host =
      local_world_size.ok() ? local_world_size->value_or(group->getSize()) : int64_t{group->getSize()};
  const bool are_spare = device == c10::kCPU && base::available_cores() >= on_host * (at::get_num_threads() + 1);
  const auto num_pieces = static_cast<int64_t>(wanted.value_or(are_spare ? kPiecesToOverlap : 1));
  // The flag is on `device`: not every group has a backend for the CPU.
  const auto decision = at::full({1}, num_pieces, at::TensorOptions(device).dtype(at::kLong));
  broadcast(decision, group_rank(0), {.group = group});
  return decision.item<int64_t>();
}

}  // namespace cohort::mesh
