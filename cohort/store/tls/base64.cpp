#include "cohort/store/tls/base64.h"

#include <openssl/evp.h>

#include <algorithm>

namespace cohort::store {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL appends a zero byte
  EVP_EncodeBlock(bytes_of(text), bytes_of(bytes), static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  const auto end = std::min(text.find('='), text.size());
  const auto num_padding = text.size() - end;
  // OpenSSL would accept white space at both ends, padding anywhere, and '-' as an end.
  if (text.size() % 4 != 0 || num_padding > 2 || text.find_first_not_of('=', end) != std::string_view::npos ||
      text.substr(0, end).find_first_not_of(kAlphabet) != std::string_view::npos) {
    return std::nullopt;
  }
  std::string bytes(text.size() / 4 * 3, '\0');
  if (EVP_DecodeBlock(bytes_of(bytes), bytes_of(text), static_cast<int>(text.size())) < 0) return std::nullopt;
  bytes.resize(bytes.size() - num_padding);
  return bytes;
}

}  // namespace cohort::store
