/// The token: a secret that agents of a job share. A server that has one gives keys under "cohort/" only to clients that prove
/// that they have it, too; other keys stay free for PyTorch's clients, which know of no token.
///
/// Both sides prove it without showing it (HMAC-SHA-256 over random numbers of both), so nobody who listens on the network
/// learns it. What they say to each other afterwards is not encrypted.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

namespace cohort::store {

/// Keys that begin so are the agents'.
inline constexpr std::string_view kProtectedPrefix = "cohort/";

/// The token in a file, without white space around it. Errors: others than its owner can read the file, or it is empty.
base::Result<std::string> read_token_file(const std::string& path);

/// From the file; if none is named, from COHORT_TOKEN; else empty: no token.
base::Result<std::string> find_token(const std::string& file);

/// Private to this folder.
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
std::string random_nonce();
enum class Side { kClient, kServer };
std::string proof_of(Side side, const std::string& token, std::string_view server_nonce, std::string_view client_nonce);
/// Takes as long wherever the first difference is.
bool is_same_proof(std::string_view a, std::string_view b);

}  // namespace cohort::store
