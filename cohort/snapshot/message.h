/// The requests and answers of a snapshot server. Private to this folder.
///
/// There are two transports: workers of the node use a UNIX socket that keeps messages apart, and pass descriptors where the list
/// says so; ranks of other nodes use TCP, with bytes after the message. Both ends belong to one job, so numbers have the
/// machine's byte order; kMagic keeps out other releases and other byte orders.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

namespace cohort::snapshot {

inline constexpr uint64_t kMagic = 0x327370616E736F63;  // "cosnaps2"

enum class Op : uint32_t {
  kWhere = 1,  ///< -; the address for other nodes (text), "" if there is none. UNIX
  kPut = 2,    ///< id and a descriptor: keeps the file and replaces one with the same id. UNIX
  kTake = 3,  ///< index; id and descriptor of the file with that number; an empty id means that there are no more. UNIX
  kDrop = 4,  ///< id. UNIX
  kProve =
      5,  ///< index of the node, both random numbers, ticket; the proofs of client and server (text, 64 bytes). UNIX
  kMake = 6,   ///< id, size: creates an empty file, unless there is one of this size. TCP
  kWrite = 7,  ///< id, offset, length, then the bytes. TCP
  kRead = 8,   ///< id, offset, length; the answer, then the bytes. TCP
};

/// The size of proofs and random numbers (store/tcp/token.h), and of tickets.
inline constexpr size_t kSecretBytes = 32;

/// The first message of a TCP client, in answer to the server's random number. The answer to it is the server's proof.
struct Greeting {
  /// The client's own node.
  uint32_t node = 0;
  char nonce[kSecretBytes] = {};
  char proof[kSecretBytes] = {};
};

struct Request {
  uint64_t magic = kMagic;
  Op op = Op::kWhere;
  uint32_t index = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  char id[40] = {};
  char nonces[2 * kSecretBytes] = {};
  char ticket[kSecretBytes] = {};
};

struct Reply {
  uint64_t magic = kMagic;
  uint32_t is_ok = 0;
  uint32_t text_bytes = 0;
  uint64_t size = 0;
  char id[40] = {};
  /// The text that was asked for, or the error.
  char text[400] = {};
};

/// Whether the text has only letters, digits, '.' and '/', at least one, and fits.
bool is_id(std::string_view text);
/// Requires is_id. Truncates a text that does not fit.
void set_id(char (&to)[40], std::string_view id);
/// Returns the id; "" if it is malformed.
std::string id_in(const char (&from)[40]);

Reply ok_reply(std::string_view text = {});
Reply failed_reply(std::string_view text);
std::string text_in(const Reply& reply);
/// Returns the error whose describe() gave `text`.
base::Error described_error(const std::string& text);

}  // namespace cohort::snapshot
