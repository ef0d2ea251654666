#include "cohort/files/tokens/token_file.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

namespace cohort::files {
namespace {

constexpr uint64_t kLlmCHeaderBytes = 256 * sizeof(int32_t);

struct LlmCKind {
  int32_t magic;
  int32_t version;
  int64_t token_size;
};
constexpr LlmCKind kLlmCKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

const LlmCKind* llm_c_kind(int32_t magic) {
  for (const LlmCKind& kind : kLlmCKinds) {
    if (kind.magic == magic) return &kind;
  }
  return nullptr;
}

// Magic number, version, number of tokens.
using LlmCHeader = std::array<int32_t, 3>;

template <typename Token>
void widen(const char* from, std::span<int64_t> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    Token token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    to[i] = token;
  }
}

}  // namespace

TokenFile::TokenFile(RandomAccessFile file, int64_t token_size, uint64_t begin)
    : file_(std::move(file)),
      token_size_(token_size),
      begin_(begin),
      size_(static_cast<int64_t>((file_.size() - begin) / static_cast<uint64_t>(token_size))) {}

base::Result<TokenFile> TokenFile::open(const std::string& path, TokenFormat format) {
  auto file = RandomAccessFile::open(path);
  if (!file) return file.error();
  return read_header(*std::move(file), format);
}

base::Result<TokenFile> TokenFile::read_header(RandomAccessFile file, TokenFormat format) {
  if (format == TokenFormat::kDetect) {
    int32_t magic = 0;
    const std::span<char> bytes(reinterpret_cast<char*>(&magic), sizeof magic);
    const bool is_llm_c = file.read(0, bytes, "magic number").ok() && llm_c_kind(magic);
    format = is_llm_c ? TokenFormat::kLlmC : TokenFormat::kRawUInt16;
  }
  if (format != TokenFormat::kLlmC) {
    const uint64_t token_size = format == TokenFormat::kRawUInt16 ? 2 : 4;
    if (const uint64_t rest = file.size() % token_size; rest != 0) {
      return file.error_at(file.size() - rest, fmt::format("a token of {} bytes", token_size),
                           fmt::format("only {} before the end of the file", rest));
    }
    return TokenFile(std::move(file), static_cast<int64_t>(token_size), 0);
  }
  LlmCHeader header{};
  const std::span<char> bytes(reinterpret_cast<char*>(header.data()), sizeof header);
  if (auto done = file.read(0, bytes, "a header of llm.c"); !done) return done.error();
  const LlmCKind* const kind = llm_c_kind(header[0]);
  if (!kind) return file.error_at(0, "20240520 or 20240801, llm.c's magic numbers", fmt::format("{}", header[0]));
  if (header[1] != kind->version) {
    return file.error_at(4, fmt::format("version {} of llm.c's files", kind->version), fmt::format("{}", header[1]));
  }
  if (file.size() < kLlmCHeaderBytes) {
    return file.error_at(0, fmt::format("a header of {} bytes", kLlmCHeaderBytes),
                         fmt::format("a file of {}", file.size()));
  }
  const uint64_t num_bytes = file.size() - kLlmCHeaderBytes;
  if (header[2] < 0 || static_cast<uint64_t>(header[2]) * static_cast<uint64_t>(kind->token_size) != num_bytes) {
    return file.error_at(8, fmt::format("the number of tokens in the {} bytes after the header", num_bytes),
                         fmt::format("{}, each of {} bytes", header[2], kind->token_size));
  }
  return TokenFile(std::move(file), kind->token_size, kLlmCHeaderBytes);
}

base::Result<void> TokenFile::read(int64_t first, std::span<int64_t> to) const {
  // Raw tokens are read to the end of `to`. Widening from the front on reads each of them before it is overwritten.
  const size_t num_bytes = to.size() * static_cast<size_t>(token_size_);
  char* const raw = reinterpret_cast<char*>(to.data()) + to.size_bytes() - num_bytes;
  if (auto done = file_.read(offset_of(first), {raw, num_bytes}, "tokens"); !done) return done;
  if (token_size_ == 2) {
    widen<uint16_t>(raw, to);
  } else {
    widen<uint32_t>(raw, to);
  }
  return {};
}

}  // namespace cohort::files
