/// The token: a secret that agents of a job share. A server with a token gives access to keys under "cohort/" only to clients
/// that prove that they have it, too; other keys stay free for PyTorch's clients, which know no tokens.
///
/// Both sides prove it without sending it (HMAC-SHA-256 over random numbers of both), so an eavesdropper does not learn it. The
/// messages after that are not encrypted.
#pragma once

#include <string>
#include <string_view>

#include "cohort/base/error/result.h"

namespace cohort::store {

/// The prefix of the agents' keys.
inline constexpr std::string_view kProtectedPrefix = "cohort/";

/// Reads the token from a file and strips white space. Errors: others than its owner can read the file, or it is empty.
base::Result<std::string> read_token_file(const std::string& path);

/// Reads the token from the file; if no file is named, from COHORT_TOKEN. Empty means no token.
base::Result<std::string> find_token(const std::string& file);

/// Private to this folder, from here on.
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
std::string random_nonce();
enum class Side { kClient, kServer };
std::string proof_of(Side side, const std::string& token, std::string_view server_nonce, std::string_view client_nonce);
/// Compares two proofs in constant time.
bool is_same_proof(std::string_view a, std::string_view b);

}  // namespace cohort::store
