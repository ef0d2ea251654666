#include "cohort/extras/files/arrays/gzip_stream.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <utility>

namespace cohort::files {
namespace {

// The largest window, with gzip's header and checksum around the content.
constexpr int kGzipWindowBits = 15 + 16;
constexpr size_t kGzipChunk = size_t{64} << 10;

}  // namespace

struct GzipStream::State {
  explicit State(RandomAccessFile file_) : file(std::move(file_)) {
    is_ready = inflateInit2(&zlib, kGzipWindowBits) == Z_OK;
  }
  ~State() {
    if (is_ready) inflateEnd(&zlib);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  base::Error damaged(const char* found) const {
    return file.error_at(next - zlib.avail_in, "compressed data of gzip", found);
  }

  RandomAccessFile file;
  z_stream zlib = {};
  bool is_ready = false;
  bool has_ended = false;
  uint64_t next = 0;  ///< the first byte of the file that has not been given to zlib
  std::array<char, kGzipChunk> chunk;
};

bool GzipStream::is_gzip(const RandomAccessFile& file) {
  std::array<char, 2> magic{};
  return file.read(0, magic, "magic number").ok() && magic == std::array{'\x1f', '\x8b'};
}

GzipStream::GzipStream(RandomAccessFile file) : state_(std::make_unique<State>(std::move(file))) {}
GzipStream::GzipStream(GzipStream&&) noexcept = default;
GzipStream::~GzipStream() = default;

// Returns 0 at the end.
base::Result<size_t> GzipStream::read_some(std::span<char> to) {
  State& state = *state_;
  z_stream& zlib = state.zlib;
  if (!state.is_ready) return base::Error("there is no memory left to unpack \"" + state.file.path() + '"');
  const auto wanted = static_cast<uInt>(std::min<size_t>(to.size(), size_t{1} << 30));
  zlib.next_out = reinterpret_cast<Bytef*>(to.data());
  zlib.avail_out = wanted;
  while (!state.has_ended && zlib.avail_out == wanted) {
    if (zlib.avail_in == 0) {
      const uint64_t count = std::min<uint64_t>(state.chunk.size(), state.file.size() - state.next);
      if (count == 0) return state.damaged("the end of the file");
      const std::span<char> part(state.chunk.data(), count);
      if (auto done = state.file.read(state.next, part, "compressed data"); !done) return done.error();
      state.next += count;
      zlib.next_in = reinterpret_cast<Bytef*>(state.chunk.data());
      zlib.avail_in = static_cast<uInt>(count);
    }
    const int status = inflate(&zlib, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      state.has_ended = zlib.avail_in == 0 && state.next == state.file.size();
      // A file may have several members, one after the other.
      if (!state.has_ended && inflateReset(&zlib) != Z_OK) return state.damaged("a part that does not begin");
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      return state.damaged(zlib.msg ? zlib.msg : "damage");
    }
  }
  return wanted - zlib.avail_out;
}

base::Result<void> GzipStream::read(std::span<char> to, std::string_view what) {
  while (!to.empty()) {
    auto count = read_some(to);
    if (!count) return count.error();
    if (*count == 0) {
      return base::Error(
          fmt::format("\"{}\", at byte {} of its unpacked content: expected {} more bytes of {}, but "
                      "found the end of it",
                      state_->file.path(), position_, to.size(), what));
    }
    to = to.subspan(*count);
    position_ += *count;
  }
  return {};
}

base::Result<void> GzipStream::expect_end() {
  std::array<char, 1> more{};
  auto count = read_some(more);
  if (!count) return count.error();
  if (*count == 0) return {};
  return base::Error(fmt::format("\"{}\", at byte {} of its unpacked content: expected the end of it, but found more",
                                 state_->file.path(), position_));
}

}  // namespace cohort::files
