#include "cohort/store/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <random>

#include "cohort/base/env.h"
#include "cohort/base/file.h"
#include "cohort/base/text.h"
#include "cohort/store/sha256.h"

namespace cohort::store {
namespace {

using base::Error;
using base::fill_in;

constexpr off_t kMostBytes = 4096;

}  // namespace

base::Result<std::string> read_token_file(const std::string& path) {
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return Error(fill_in("cannot open the token file \"{}\": {}", path, base::errno_text(errno)));
  struct stat info {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error(fill_in("the token file \"{}\" is not a regular file", path));
  }
  if (info.st_mode & (S_IRWXG | S_IRWXO)) {
    return Error(fill_in("the token file \"{}\" can be read or written by other users", path))
        .with_hint(fill_in("chmod 600 {}", path));
  }
  if (info.st_size > kMostBytes)
    return Error(fill_in("the token file \"{}\" has more than {} bytes", path, kMostBytes));
  // The file that was looked at, whatever the path names by now.
  const auto text = base::read_file("/proc/self/fd/" + std::to_string(file.get()));
  if (!text) return Error(fill_in("cannot read the token file \"{}\"", path)).caused_by(text.error());
  auto token = base::trim(*text);
  if (token.empty()) return Error(fill_in("the token file \"{}\" is empty", path));
  return token;
}

base::Result<std::string> find_token(const std::string& file) {
  if (!file.empty()) return read_token_file(file);
  return base::get_env("COHORT_TOKEN").value_or("");
}

std::string random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size())) return nonce;
  std::random_device random;  // a kernel without getrandom
  for (auto& byte : nonce) byte = static_cast<char>(random());
  return nonce;
}

std::string proof_of(Side side, const std::string& token, std::string_view server_nonce,
                     std::string_view client_nonce) {
  std::string message = side == Side::kClient ? "cohort store client" : "cohort store server";
  return hmac_sha256(token, message.append(server_nonce).append(client_nonce));
}

}  // namespace cohort::store
