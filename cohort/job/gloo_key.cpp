#include "cohort/job/gloo_key.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

namespace cohort::job {
namespace {

// Reads a 64-bit length and that many bytes from `begin` on.
std::optional<std::string> take_block(const std::vector<uint8_t>& bytes, size_t& begin) {
  uint64_t length = 0;
  if (bytes.size() < begin + sizeof length) return std::nullopt;
  std::memcpy(&length, &bytes[begin], sizeof length);
  begin += sizeof length;
  if (length > bytes.size() - begin) return std::nullopt;
  std::string block(bytes.begin() + static_cast<ptrdiff_t>(begin),
                    bytes.begin() + static_cast<ptrdiff_t>(begin + length));
  begin += length;
  return block;
}

}  // namespace

std::string gloo_key(int rank) { return "cpu//0/" + std::to_string(rank); }

std::optional<GlooEntry> decode_gloo_entry(const std::vector<uint8_t>& bytes) {
  size_t begin = 0;
  const auto host = take_block(bytes, begin);
  const auto block = host ? take_block(bytes, begin) : std::nullopt;
  sockaddr_storage storage{};
  if (!block || block->size() < sizeof storage) return std::nullopt;
  std::memcpy(&storage, block->data(), sizeof storage);
  std::array<char, INET6_ADDRSTRLEN> text{};
  GlooEntry entry{.host = *host, .address = {}, .port = 0};
  if (storage.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage);
    entry.port = ntohs(address.sin_port);
    inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  } else if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage);
    entry.port = ntohs(address.sin6_port);
    inet_ntop(AF_INET6, &address.sin6_addr, text.data(), text.size());
  } else {
    return std::nullopt;
  }
  entry.address = text.data();
  return entry;
}

}  // namespace cohort::job
