/// TlsOptions: the files with which a client speaks TLS.
#pragma once

#include <string>

namespace cohort::store {

/// Files in PEM form. They are read for each connection, so that certificates can be renewed while a job runs.
struct TlsOptions {
  /// Certificates of the authorities that the server's may be signed by; empty: those of this system, or of SSL_CERT_FILE.
  std::string ca_file;
  /// This client's certificate, with those between it and its authority; empty: none.
  std::string certificate_file;
  /// Its key; empty: it is in certificate_file.
  std::string key_file;
};

}  // namespace cohort::store
