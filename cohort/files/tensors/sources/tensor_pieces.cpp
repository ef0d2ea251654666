#include "cohort/files/tensors/sources/tensor_pieces.h"

#include <algorithm>
#include <vector>

namespace cohort::files {

base::Result<void> for_each_piece(
    const TensorSource& source, size_t tensor,
    const std::function<base::Result<void>(std::string_view bytes, uint64_t first_byte)>& visit) {
  const auto num_bytes = static_cast<uint64_t>(source.tensors()[tensor].num_bytes());
  std::vector<char> piece(std::min(num_bytes, kTensorPieceBytes));
  for (uint64_t at = 0; at < num_bytes; at += piece.size()) {
    piece.resize(std::min(num_bytes - at, kTensorPieceBytes));
    if (auto read = source.read(tensor, at, piece); !read) return read;
    if (auto visited = visit({piece.data(), piece.size()}, at); !visited) return visited;
  }
  return {};
}

}  // namespace cohort::files
