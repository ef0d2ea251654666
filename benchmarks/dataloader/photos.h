/// Makes JPEGs with the size and decoding time of photographs.
#pragma once

#include <string>

namespace cohort::bench {

/// Writes `count` JPEGs of 500x375, quality 90, into ten folders below `folder`, as ImageFolder reads them, always the same.
/// Throws std::runtime_error.
void write_photos(const std::string& folder, int count);

}  // namespace cohort::bench
