/// TlsContext: creates OpenSSL's context from TlsOptions. Private to this folder.
#pragma once

#include <memory>

#include "cohort/base/error/result.h"
#include "cohort/store/tls/tls_options.h"

struct ssl_ctx_st;

namespace cohort::store {

struct TlsContextDeleter {
  void operator()(ssl_ctx_st* context) const;
};
/// OpenSSL's SSL_CTX for clients that check the server's certificate; TLS 1.2 or later.
using TlsContext = std::unique_ptr<ssl_ctx_st, TlsContextDeleter>;

/// Reads the files. Errors name the file and say what is wrong with it.
base::Result<TlsContext> make_tls_context(const TlsOptions& options);

/// Returns a warning if other users of this host can read or write the key file, otherwise an empty text.
std::string doubt_about_key(const TlsOptions& options);

}  // namespace cohort::store
