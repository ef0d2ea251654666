/// The entry that Gloo writes into the store when it starts: the only sign of a Python rank before it waits for others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort::job {

/// Returns the key of group rank `rank` below the group's store. Every rank writes it before it waits for the others, also with
/// TORCH_GLOO_LAZY_INIT=1. (The "0" is the first of Gloo's devices.)
std::string gloo_key(int rank);

struct GlooEntry {
  std::string host;
  std::string address;  ///< the numeric address
  int port = 0;
};

/// Parses the value of gloo_key: length and host name, length and socket address. Returns nothing for any other text.
std::optional<GlooEntry> decode_gloo_entry(const std::vector<uint8_t>& bytes);

}  // namespace cohort::job
