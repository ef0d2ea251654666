/// Reads a tensor of a file in pieces that fit into a core's cache, whatever its size.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// The size of each piece but the last; a multiple of every element's size.
inline constexpr uint64_t kTensorPieceBytes = uint64_t{1} << 20;

/// Calls `visit` with complete elements, in row-major order, and the place of the first byte. Stops at the first failure.
base::Result<void> for_each_piece(
    const TensorSource& source, size_t tensor,
    const std::function<base::Result<void>(std::string_view bytes, uint64_t first_byte)>& visit);

}  // namespace cohort::files
