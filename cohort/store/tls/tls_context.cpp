#include "cohort/store/tls/tls_context.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>
#include <sys/stat.h>

#include <cerrno>

#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/store/tls/openssl.h"

namespace cohort::store {
namespace {

using base::Error;
using base::Result;

const std::string& key_file(const TlsOptions& options) {
  return options.key_file.empty() ? options.certificate_file : options.key_file;
}

// Checks a file, to report the reason, which OpenSSL does not always know.
Result<void> look_at(const char* what, const std::string& path) {
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return Error(fmt::format("cannot open the {} \"{}\": {}", what, path, base::errno_text(errno)));
  struct stat info {};
  if (fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode)) return {};
  return Error(fmt::format("the {} \"{}\" is not a regular file", what, path));
}

// OpenSSL's readers of certificates, of lists of certificates and of keys each have another code for this.
bool is_no_pem(unsigned long code) {
  const int reason = ERR_GET_REASON(code);
  switch (ERR_GET_LIB(code)) {
    case ERR_LIB_PEM:
      return reason == PEM_R_NO_START_LINE;
    case ERR_LIB_X509:
      return reason == X509_R_NO_CERTIFICATE_OR_CRL_FOUND;
    case ERR_LIB_OSSL_DECODER:
      return reason == ERR_R_UNSUPPORTED;
    default:
      return false;
  }
}

Error bad_file(const char* what, const std::string& path, const char* contents) {
  const bool is_other_file = is_no_pem(ERR_peek_error());
  const auto reason = openssl_error();
  if (is_other_file) return Error(fmt::format("the {} \"{}\" holds no {} in PEM form", what, path, contents));
  return Error(fmt::format("the {} \"{}\" holds no {} that can be used: {}", what, path, contents, reason));
}

Result<void> trust(SSL_CTX* context, const std::string& path) {
  if (path.empty()) {
    SSL_CTX_set_default_verify_paths(context);
    ERR_clear_error();
    return {};
  }
  if (auto looked = look_at("CA file", path); !looked) return looked;
  if (SSL_CTX_load_verify_file(context, path.c_str()) != 1) return bad_file("CA file", path, "certificate");
  return {};
}

// Replaces OpenSSL's question on the terminal.
int no_passphrase(char*, int, int, void* was_asked) {
  *static_cast<bool*>(was_asked) = true;
  return -1;
}

Result<void> load_key(SSL_CTX* context, const std::string& path) {
  if (auto looked = look_at("key file", path); !looked) return looked;
  bool was_asked = false;
  SSL_CTX_set_default_passwd_cb(context, no_passphrase);
  SSL_CTX_set_default_passwd_cb_userdata(context, &was_asked);
  const bool is_loaded = SSL_CTX_use_PrivateKey_file(context, path.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  if (is_loaded) return {};
  if (!was_asked) return bad_file("key file", path, "private key");
  ERR_clear_error();
  return Error(fmt::format("the key file \"{}\" is locked with a passphrase", path))
      .with_hint("give a key without one, in a file that its owner alone can read: openssl pkey -in KEY -out NEW_KEY");
}

Result<void> load_certificate(SSL_CTX* context, const TlsOptions& options) {
  const auto& path = options.certificate_file;
  if (path.empty()) return {};
  if (auto looked = look_at("certificate file", path); !looked) return looked;
  // Loads the key first: a certificate that does not match the key removes it, whatever their kinds.
  if (auto loaded = load_key(context, key_file(options)); !loaded) return loaded;
  if (SSL_CTX_use_certificate_chain_file(context, path.c_str()) != 1) {
    return bad_file("certificate file", path, "certificate");
  }
  if (SSL_CTX_check_private_key(context) == 1) return {};
  ERR_clear_error();
  return Error(fmt::format("the key in \"{}\" does not belong to the certificate in \"{}\"", key_file(options), path));
}

}  // namespace

void TlsContextDeleter::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }

Result<TlsContext> make_tls_context(const TlsOptions& options) {
  start_openssl();
  ERR_clear_error();
  TlsContext context(SSL_CTX_new(TLS_client_method()));
  if (!context) return Error("cannot begin with TLS: " + openssl_error());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // The certificate of an intermediate authority is enough, as for other clients of etcd.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context.get()), X509_V_FLAG_PARTIAL_CHAIN);
  if (auto trusted = trust(context.get(), options.ca_file); !trusted) return trusted.error();
  if (auto loaded = load_certificate(context.get(), options); !loaded) return loaded.error();
  return context;
}

std::string doubt_about_key(const TlsOptions& options) {
  struct stat info {};
  const auto& path = key_file(options);
  if (path.empty() || stat(path.c_str(), &info) != 0 || (info.st_mode & S_IRWXO) == 0) return {};
  return fmt::format("the key file \"{}\" can be read or written by every user of this host: chmod 600 {}", path, path);
}

}  // namespace cohort::store
