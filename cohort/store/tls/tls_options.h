/// TlsOptions: the files that a client needs for TLS.
#pragma once

#include <string>

namespace cohort::store {

/// Names of files in PEM form. They are read for each connection, so that certificates can be renewed while a job runs.
struct TlsOptions {
  /// Certificates of the authorities that may have signed the server's certificate. Empty means those of this system, or of
  /// SSL_CERT_FILE.
  std::string ca_file;
  /// This client's certificate, with the intermediate certificates. Empty means that the client shows none.
  std::string certificate_file;
  /// The key of the certificate. Empty means that it is in certificate_file.
  std::string key_file;
};

}  // namespace cohort::store
