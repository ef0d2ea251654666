/// Startup and error texts for all uses of OpenSSL. Private to this folder.
#pragma once

#include <string>

namespace cohort::store {

/// Must be called before any other function of OpenSSL. OpenSSL then reads no openssl.cnf, which may be of another release than
/// the library that is linked in, and does not clean up at the end of the process, when threads may still use it. Later calls
/// cost nothing.
void start_openssl();

/// Returns this thread's first OpenSSL error, in OpenSSL's words, such as "key values mismatch". Clears all errors.
std::string openssl_error();

}  // namespace cohort::store
