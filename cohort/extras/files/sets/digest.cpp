#include "cohort/extras/files/sets/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"

namespace cohort::files {
namespace {

std::string to_hex(const unsigned char* bytes, size_t size) {
  std::string hex;
  for (size_t i = 0; i < size; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

}  // namespace

base::Result<std::string> file_digest(const std::string& path, std::string_view algorithm) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const EVP_MD* const kind = EVP_get_digestbyname(std::string(algorithm).c_str());
  if (!context || !kind || EVP_DigestInit_ex(context.get(), kind, nullptr) != 1) {
    return base::Error(fmt::format("cannot check \"{}\": OpenSSL has no digest {}", path, algorithm));
  }
  const auto fail = [&] { return base::Error(fmt::format("cannot read \"{}\": {}", path, base::errno_text(errno))); };
  const auto file = base::open_regular_file(path);
  if (!file) return base::Error(fmt::format("cannot read \"{}\": {}", path, file.error().message()));
  std::vector<unsigned char> buffer(1 << 18);
  for (;;) {
    const ssize_t size = ::read(file->get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return fail();
    if (size == 0) break;
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(size));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), digest, &length);
  return to_hex(digest, length);
}

}  // namespace cohort::files
