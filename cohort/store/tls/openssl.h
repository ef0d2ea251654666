/// What all that uses OpenSSL has to do and to say. Private to this folder.
#pragma once

#include <string>

namespace cohort::store {

/// To be called before anything else of OpenSSL. It then reads no openssl.cnf, which may be of another release than the one
/// that is linked in, and leaves the end of the process alone, where threads may still use it. Later calls cost nothing.
void start_openssl();

/// What failed first in this thread, in OpenSSL's words, such as "key values mismatch". Forgets all that failed.
std::string openssl_error();

}  // namespace cohort::store
