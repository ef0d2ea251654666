/// What a vault is asked and what it answers. Private to this folder.
///
/// Two transports: workers of the node over a UNIX socket that keeps messages apart, with a descriptor where one is named; ranks
/// of other nodes over TCP, with bytes behind the message. Both ends are of one job, so numbers are the machine's own; kMagic
/// keeps out other releases and other byte orders.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

namespace cohort::vault {

inline constexpr uint64_t kMagic = 0x32746C7561766F63;  // "covault2"

enum class Op : uint32_t {
  kWhere = 1,  ///< -; under which other nodes reach this vault (text), "" if not at all. UNIX
  kPut = 2,    ///< id and a descriptor: keep it, instead of what has the id. UNIX
  kTake = 3,   ///< index; id and descriptor of the file with that number; an empty id: there are no more. UNIX
  kDrop = 4,   ///< id. UNIX
  kProve =
      5,  ///< index: whose node's vault, both random numbers, ticket; the proofs of client and server (text, 64 bytes). UNIX
  kMake = 6,   ///< id, size: an empty file, unless there is one of this size. TCP
  kWrite = 7,  ///< id, offset, length, then the bytes. TCP
  kRead = 8,   ///< id, offset, length; the answer, then the bytes. TCP
};

/// Proofs and random numbers (store/tcp/token.h), and tickets.
inline constexpr size_t kSecretBytes = 32;

/// What a client over TCP sends first, in answer to the server's random number. The answer is the server's proof.
struct Greeting {
  /// The client's own.
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
  /// What was asked for, or why there is none.
  char text[400] = {};
};

/// Letters, digits, '.' and '/', at least one and no more than fit.
bool is_id(std::string_view text);
/// Requires is_id. Cut where it does not fit.
void set_id(char (&to)[40], std::string_view id);
/// "" where it is none.
std::string id_in(const char (&from)[40]);

Reply ok_reply(std::string_view text = {});
Reply failed_reply(std::string_view text);
std::string text_in(const Reply& reply);
/// The error whose describe() gave `text`.
base::Error described_error(const std::string& text);

}  // namespace cohort::vault
