/// KeyPair: gives two processes that know each other's public key a common secret, which nobody who sees only the public keys can
/// learn (X25519). It does not prove whose a public key is.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

struct evp_pkey_st;

namespace cohort::store {

inline constexpr size_t kPublicKeyBytes = 32;

/// Thread-safety: immutable after creation.
class KeyPair {
 public:
  /// Creates a new key pair. Errors: OpenSSL has no random numbers or no X25519.
  static base::Result<KeyPair> create();

  /// The public key, kPublicKeyBytes long.
  const std::string& public_key() const { return public_key_; }
  /// Returns the secret, which is the same on both sides. An error if `other` is not a public key.
  base::Result<std::string> secret_with(std::string_view other) const;

 private:
  explicit KeyPair(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}

  std::shared_ptr<evp_pkey_st> key_;
  std::string public_key_;
};

}  // namespace cohort::store
