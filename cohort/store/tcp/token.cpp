#include "cohort/store/tcp/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <random>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"
#include "cohort/store/tls/openssl.h"

namespace cohort::store {
namespace {

using base::Error;

constexpr off_t kMostBytes = 4096;

}  // namespace

base::Result<std::string> read_token_file(const std::string& path) {
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return Error(fmt::format("cannot open the token file \"{}\": {}", path, base::errno_text(errno)));
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error(fmt::format("the token file \"{}\" is not a regular file", path));
  }
  if (info.st_mode & (S_IRWXG | S_IRWXO)) {
    return Error(fmt::format("the token file \"{}\" can be read or written by other users", path))
        .with_hint(fmt::format("chmod 600 {}", path));
  }
  if (info.st_size > kMostBytes)
    return Error(fmt::format("the token file \"{}\" has more than {} bytes", path, kMostBytes));
  // Reads the file that was checked, even if the path names another file by now.
  auto text = base::read_file("/proc/self/fd/" + std::to_string(file.get()));
  if (!text) return Error(fmt::format("cannot read the token file \"{}\"", path)).caused_by(text.error());
  auto token = base::trim(*text);
  OPENSSL_cleanse(text->data(), text->size());
  if (token.empty()) return Error(fmt::format("the token file \"{}\" is empty", path));
  return token;
}

base::Result<std::string> find_token(const std::string& file) {
  if (!file.empty()) return read_token_file(file);
  return base::get_env("COHORT_TOKEN").value_or("");
}

std::string random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size())) return nonce;
  std::random_device random;  // for kernels without getrandom
  for (auto& byte : nonce) byte = static_cast<char>(random());
  return nonce;
}

std::string proof_of(Side side, const std::string& token, std::string_view server_nonce,
                     std::string_view client_nonce) {
  std::string message = side == Side::kClient ? "cohort store client" : "cohort store server";
  message.append(server_nonce).append(client_nonce);
  start_openssl();
  std::string proof(kProofBytes, '\0');
  if (!HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
            reinterpret_cast<const unsigned char*>(message.data()), message.size(),
            reinterpret_cast<unsigned char*>(proof.data()), nullptr)) {
    base::log_error("cannot compute HMAC-SHA-256: " + openssl_error());
    return random_nonce();  // a proof that never matches
  }
  return proof;
}

bool is_same_proof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace cohort::store
