/// What Gloo writes into the store when it starts: the one sign of life that a Python rank gives before it waits for others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort::job {

/// Key of group rank `rank` below the group's store; every rank writes it before it waits for the others, with
/// TORCH_GLOO_LAZY_INIT=1 too. (The "0" is the first of Gloo's devices.)
std::string gloo_key(int rank);

struct GlooEntry {
  std::string host;
  std::string address;  ///< numeric
  int port = 0;
};

/// Reads the value of gloo_key: length and host name, length and socket address; nothing if it looks otherwise.
std::optional<GlooEntry> decode_gloo_entry(const std::vector<uint8_t>& bytes);

}  // namespace cohort::job
