/// The part of crc32() that processors with wide carry-less multiplication (VPCLMULQDQ) do at the speed of memory, three times
/// as fast as the library's 128 bits. After "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Gopal
/// et al., Intel, 2009): a block is folded onto the next one, which leaves a short text with the same checksum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cohort::files {

inline constexpr size_t kFoldedBytes = 64;
inline constexpr size_t kFoldBlockBytes = 256;

bool can_fold_crc32();

/// Bytes whose checksum, from a register of zeros, is that of `bytes` from `before`. Requires: can_fold_crc32(), and a size that
/// is a multiple of kFoldBlockBytes, not 0.
std::array<char, kFoldedBytes> fold_crc32(std::string_view bytes, uint32_t before);

}  // namespace cohort::files
