#include "cohort/store/tls/key_pair.h"

#include <openssl/evp.h>

#include "cohort/store/tls/openssl.h"

namespace cohort::store {
namespace {

using base::Error;
using base::Result;

unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

Result<KeyPair> KeyPair::create() {
  start_openssl();
  const std::shared_ptr<EVP_PKEY> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"), EVP_PKEY_free);
  KeyPair pair(key);
  pair.public_key_.resize(kPublicKeyBytes);
  size_t size = kPublicKeyBytes;
  if (!key || EVP_PKEY_get_raw_public_key(key.get(), bytes_of(pair.public_key_), &size) != 1) {
    return Error("cannot make a key pair (X25519)").caused_by(Error(openssl_error()));
  }
  return pair;
}

Result<std::string> KeyPair::secret_with(std::string_view other) const {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, reinterpret_cast<const unsigned char*>(other.data()),
                                  other.size()),
      EVP_PKEY_free);
  const std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)> context(EVP_PKEY_CTX_new(key_.get(), nullptr),
                                                                            EVP_PKEY_CTX_free);
  std::string secret(kPublicKeyBytes, '\0');
  size_t size = secret.size();
  if (!key || !context || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), key.get()) != 1 ||
      EVP_PKEY_derive(context.get(), bytes_of(secret), &size) != 1 || size != secret.size()) {
    return Error("this is not a public key (X25519)").caused_by(Error(openssl_error()));
  }
  return secret;
}

}  // namespace cohort::store
