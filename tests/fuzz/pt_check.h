/// What holds for every .pt file that is read without an error.
#pragma once

#include <algorithm>
#include <string>

#include "cohort/files/tensors/sources/pt_source.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::fuzz {

/// Whatever the bytes are: an error, or tensors whose bytes can be read.
inline void check_pt_file(std::string_view bytes) {
  const auto source = files::open_pt_file(files::RandomAccessFile::view("x.pt", bytes));
  if (!source) return;
  const auto& tensors = (*source)->tensors();
  std::string room;
  for (size_t i = 0; i < std::min<size_t>(tensors.size(), 20); ++i) {
    FUZZ_CHECK(tensors[i].num_elements() >= 0 && tensors[i].num_bytes() >= 0);
    room.resize(static_cast<size_t>(std::min<int64_t>(tensors[i].num_bytes(), 1 << 12)));
    const bool has_read = (*source)->read(i, 0, room).ok();
    if (has_read && tensors[i].num_bytes() > 0) {
      const auto last = static_cast<uint64_t>(tensors[i].num_bytes() - 1);
      FUZZ_CHECK((*source)->read(i, last, std::span(room).first(1)).ok());
    }
  }
}

}  // namespace cohort::fuzz
