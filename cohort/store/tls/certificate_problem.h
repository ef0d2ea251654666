/// Explains why a server's certificate is not trusted. Private to this folder.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/store/tls/tls_options.h"

struct x509_st;

namespace cohort::store {

/// Describes the problem with the certificate, given OpenSSL's number for it (X509_V_ERR_...), as "its certificate has expired
/// ...". `depth` is 0 for the server's own certificate, else that of an authority above it. Pure.
base::Error certificate_problem(int problem, int depth, x509_st* certificate, const std::string& host,
                                const TlsOptions& options);

}  // namespace cohort::store
