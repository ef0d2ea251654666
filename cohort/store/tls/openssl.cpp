#include "cohort/store/tls/openssl.h"

#include <openssl/crypto.h>
#include <openssl/err.h>

namespace cohort::store {

void start_openssl() { OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr); }

std::string openssl_error() {
  const auto code = ERR_peek_error();  // later errors follow from the first
  const auto* const reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason ? reason : "error " + std::to_string(code) + " of OpenSSL";
}

}  // namespace cohort::store
