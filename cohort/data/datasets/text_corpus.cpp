#include "cohort/data/datasets/text_corpus.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/throw_error.h"

namespace cohort::data {
namespace {

namespace fs = std::filesystem;

// By default the kernel allows a process 65530 mappings. Files beyond this number are read into memory.
constexpr size_t kMaxMappings = 16384;
constexpr int64_t kBinaryProbeBytes = 8192;

bool has_extension(const std::string& path, const std::vector<std::string>& extensions) {
  return extensions.empty() || std::any_of(extensions.begin(), extensions.end(),
                                           [&](const std::string& extension) { return path.ends_with(extension); });
}

std::vector<std::string> list_files(const std::string& folder, const std::vector<std::string>& extensions) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code type_error;
    if (!it->is_regular_file(type_error)) continue;
    std::string path = it->path().string();
    if (has_extension(path, extensions)) files.push_back(std::move(path));
  }
  TORCH_CHECK(!error, "[cohort] cannot list the folder \"", folder,
              "\"\n  caused by: ", base::errno_text(error.value()));
  std::sort(files.begin(), files.end());
  return files;
}

std::string describe_extensions(const std::vector<std::string>& extensions) {
  return extensions.empty() ? "" : " with a name that ends in " + base::join(extensions, ", ");
}

}  // namespace

struct TextCorpus::Piece {
  Piece(const uint8_t* data_, int64_t size_, int64_t begin_, bool is_mapped_)
      : data(data_), size(size_), begin(begin_), is_mapped(is_mapped_) {}
  Piece(Piece&& other) noexcept
      : data(std::exchange(other.data, nullptr)), size(other.size), begin(other.begin), is_mapped(other.is_mapped) {}
  Piece& operator=(Piece&&) = delete;
  ~Piece() {
    if (data && is_mapped) munmap(const_cast<uint8_t*>(data), size);
    if (!is_mapped) delete[] data;
  }
  const uint8_t* data;
  int64_t size;
  int64_t begin;
  bool is_mapped;
};

TextCorpus::TextCorpus() = default;
TextCorpus::~TextCorpus() = default;

std::shared_ptr<const TextCorpus> TextCorpus::open(const std::string& path, const TextCorpusOptions& options) {
  const int64_t limit = options.max_bytes.value_or(INT64_MAX);
  TORCH_CHECK_VALUE(limit >= 1, "[cohort] TextCorpus needs max_bytes >= 1, but got ", limit);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  TORCH_CHECK_VALUE(status.type() != fs::file_type::not_found, "[cohort] no text at \"", path,
                    "\": there is no such file or folder\n  hint: give the path of a text file or of a folder of them");
  TORCH_CHECK(fs::status_known(status), "[cohort] cannot look at \"", path,
              "\"\n  caused by: ", base::errno_text(error.value()));
  std::shared_ptr<TextCorpus> corpus(new TextCorpus());
  if (!fs::is_directory(status)) {
    corpus->add_file(path, limit, /*skip_binary=*/false);
    TORCH_CHECK(corpus->size_ > 0, "[cohort] no text in \"", path, "\": the file is empty");
    return corpus;
  }
  const std::vector<std::string> files = list_files(path, options.extensions);
  for (const std::string& file : files) {
    if (corpus->size_ >= limit) break;
    if (!corpus->add_file(file, limit - corpus->size_, /*skip_binary=*/true)) ++corpus->num_skipped_files_;
  }
  TORCH_CHECK(corpus->size_ > 0, "[cohort] no text under \"", path, "\"\n  found ", files.size(), " files",
              describe_extensions(options.extensions), ", of which ", corpus->num_skipped_files_,
              " are binary and the others empty\n  hint: give a folder that holds text files");
  return corpus;
}

bool TextCorpus::add_file(const std::string& path, int64_t num_bytes_wanted, bool skip_binary) {
  const auto fail = [&](const char* what) {
    TORCH_CHECK(false, "[cohort] cannot ", what, " \"", path, "\"\n  caused by: ", base::errno_text(errno));
  };
  const base::Fd fd = comm::or_throw(base::open_regular_file(path), "cannot open \"" + path + "\"");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) fail("look at");
  const int64_t size = std::min<int64_t>(info.st_size, num_bytes_wanted);
  if (size == 0) return true;
  uint8_t* data = nullptr;
  const bool is_mapped = pieces_.size() < kMaxMappings;
  if (is_mapped) {
    void* mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (mapping == MAP_FAILED) fail("map");
    data = static_cast<uint8_t*>(mapping);
  } else {
    data = new uint8_t[size];
  }
  Piece piece(data, size, size_, is_mapped);
  for (int64_t done = 0; !is_mapped && done < size;) {
    const ssize_t count = pread(fd.get(), data + done, size - done, done);
    if (count <= 0 && errno != EINTR) fail("read");
    done += std::max<ssize_t>(count, 0);
  }
  if (skip_binary && std::memchr(data, 0, std::min(size, kBinaryProbeBytes)) != nullptr) return false;
  pieces_.push_back(std::move(piece));
  files_.push_back(path);
  size_ += size;
  return true;
}

void TextCorpus::read(int64_t offset, std::span<uint8_t> to) const {
  const auto count = static_cast<int64_t>(to.size());
  TORCH_CHECK_INDEX(offset >= 0 && count <= size_ && offset <= size_ - count, "[cohort] cannot read ", count,
                    " bytes at offset ", offset, " of a text of ", size_, " bytes");
  if (count == 0) return;
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](int64_t value, const Piece& piece) { return value < piece.begin; }) -
               1;
  for (int64_t done = 0; done < count; ++piece) {
    const int64_t skip = offset + done - piece->begin;
    const int64_t part = std::min(count - done, piece->size - skip);
    std::memcpy(to.data() + done, piece->data + skip, part);
    done += part;
  }
}

at::Tensor TextCorpus::bytes(int64_t begin, int64_t end) const {
  TORCH_CHECK_INDEX(begin >= 0 && begin <= end && end <= size_, "[cohort] the bytes [", begin, ", ", end,
                    ") are not in a text of ", size_, " bytes");
  at::Tensor result = at::empty({end - begin}, at::kByte);
  read(begin, {result.mutable_data_ptr<uint8_t>(), static_cast<size_t>(end - begin)});
  return result;
}

}  // namespace cohort::data
