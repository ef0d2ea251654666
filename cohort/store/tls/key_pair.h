/// KeyPair: two processes that know each other's public key have a secret in common, which nobody learns who sees both public
/// keys (X25519). It does not say whose a public key is.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

struct evp_pkey_st;

namespace cohort::store {

inline constexpr size_t kPublicKeyBytes = 32;

/// Thread-safety: const after creation.
class KeyPair {
 public:
  /// A new one. Error: OpenSSL has no random numbers or no X25519.
  static base::Result<KeyPair> create();

  /// kPublicKeyBytes bytes.
  const std::string& public_key() const { return public_key_; }
  /// The same text on both sides. Error: `other` is no public key.
  base::Result<std::string> secret_with(std::string_view other) const;

 private:
  explicit KeyPair(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}

  std::shared_ptr<evp_pkey_st> key_;
  std::string public_key_;
};

}  // namespace cohort::store
