#include "cohort/extras/files/arrays/npz.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/extras/files/arrays/gzip_stream.h"
#include "cohort/extras/files/arrays/npy.h"

namespace cohort::files {
namespace {

constexpr std::string_view kNpyEnding = ".npy";
constexpr size_t kMaxShownNames = 10;

base::Error zip_failure(const std::string& path, zip_error_t* error) {
  return base::Error(fmt::format("cannot read \"{}\" as a zip archive: {}", path, zip_error_strerror(error)));
}

struct ZipMember {
  explicit ZipMember(zip_file_t* file_) : file(file_) {}
  ~ZipMember() {
    if (file) zip_fclose(file);
  }
  ZipMember(const ZipMember&) = delete;
  ZipMember& operator=(const ZipMember&) = delete;

  base::Result<void> read(const std::string& name, std::span<char> to) {
    while (!to.empty()) {
      const zip_int64_t count = zip_fread(file, to.data(), to.size());
      if (count < 0) return damaged(name);
      if (count == 0) return base::Error(fmt::format("\"{}\" ends {} bytes too early", name, to.size()));
      to = to.subspan(static_cast<size_t>(count));
    }
    return {};
  }
  // Reads the end, which compares the checksum.
  base::Result<void> expect_end(const std::string& name) {
    char more = 0;
    const zip_int64_t count = zip_fread(file, &more, 1);
    if (count < 0) return damaged(name);
    if (count > 0) return base::Error(fmt::format("\"{}\" has more bytes than the archive's directory says", name));
    return {};
  }
  base::Error damaged(const std::string& name) {
    return base::Error(fmt::format("\"{}\" cannot be unpacked: {}", name, zip_file_strerror(file)));
  }

  zip_file_t* file;
};

}  // namespace

struct NpzFile::Archive {
  ~Archive() {
    if (zip) zip_discard(zip);
  }
  std::string path;
  uint64_t size = 0;
  zip_t* zip = nullptr;
};

NpzFile::NpzFile() : archive_(std::make_unique<Archive>()) {}
NpzFile::NpzFile(NpzFile&&) noexcept = default;
NpzFile::~NpzFile() = default;

base::Result<NpzFile> NpzFile::open(const std::string& path) {
  // Reports a missing file, a folder or a pipe. libzip then reads the file itself, without mapping it.
  auto file = RandomAccessFile::open(path);
  if (!file) return file.error();
  NpzFile npz;
  npz.archive_->path = path;
  npz.archive_->size = file->size();
  int code = 0;
  npz.archive_->zip = zip_open(path.c_str(), ZIP_RDONLY, &code);
  if (!npz.archive_->zip) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    base::Error failure = zip_failure(path, &error);
    zip_error_fini(&error);
    return failure;
  }
  if (auto listed = npz.list(); !listed) return listed.error();
  return npz;
}

base::Result<NpzFile> NpzFile::view(std::string name, std::string_view bytes) {
  NpzFile npz;
  npz.archive_->path = std::move(name);
  npz.archive_->size = bytes.size();
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source) npz.archive_->zip = zip_open_from_source(source, ZIP_RDONLY, &error);
  if (!npz.archive_->zip) {
    base::Error failure = zip_failure(npz.archive_->path, &error);
    if (source) zip_source_free(source);
    zip_error_fini(&error);
    return failure;
  }
  zip_error_fini(&error);
  if (auto listed = npz.list(); !listed) return listed.error();
  return npz;
}

base::Result<void> NpzFile::list() {
  const zip_int64_t count = zip_get_num_entries(archive_->zip, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* const name = zip_get_name(archive_->zip, static_cast<zip_uint64_t>(i), ZIP_FL_ENC_RAW);
    if (!name) return zip_failure(archive_->path, zip_get_error(archive_->zip));
    std::string_view text(name);
    if (!text.ends_with(kNpyEnding)) {
      return base::Error(
          fmt::format("\"{}\" is not a .npz file: its member \"{}\" is not a .npy file", archive_->path, text));
    }
    names_.emplace_back(text.substr(0, text.size() - kNpyEnding.size()));
  }
  return {};
}

base::Result<ArrayData> NpzFile::read(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) {
    std::vector<std::string> shown(names_.begin(),
                                   names_.begin() + static_cast<ptrdiff_t>(std::min(names_.size(), kMaxShownNames)));
    return base::Error(fmt::format("\"{}\" has no array \"{}\", but {} others: {}{}", archive_->path, name,
                                   names_.size(), base::quoted_list(shown),
                                   names_.size() > kMaxShownNames ? " ..." : ""));
  }
  const auto index = static_cast<zip_uint64_t>(found - names_.begin());
  const std::string full_name = archive_->path + "/" + name + std::string(kNpyEnding);
  zip_stat_t info;
  zip_stat_init(&info);
  if (zip_stat_index(archive_->zip, index, 0, &info) != 0 || !(info.valid & ZIP_STAT_SIZE) ||
      !(info.valid & ZIP_STAT_COMP_SIZE) || !(info.valid & ZIP_STAT_COMP_METHOD)) {
    return zip_failure(full_name, zip_get_error(archive_->zip));
  }
  if (info.comp_method != ZIP_CM_STORE && info.comp_method != ZIP_CM_DEFLATE) {
    return base::Error(fmt::format("\"{}\" is packed by method {} of zip, but only stored and deflated arrays are read",
                                   full_name, info.comp_method));
  }
  const uint64_t factor = info.comp_method == ZIP_CM_STORE ? 1 : kMostDeflated;
  if (info.comp_size > archive_->size || info.size / factor > info.comp_size) {
    return base::Error(fmt::format("\"{}\" cannot have {} bytes that are packed into {}, in an archive of {}",
                                   full_name, info.size, info.comp_size, archive_->size));
  }
  ZipMember member(zip_fopen_index(archive_->zip, index, 0));
  if (!member.file) return zip_failure(full_name, zip_get_error(archive_->zip));
  std::string head(std::min<uint64_t>(info.size, kMaxNpyHeader), '\0');
  if (auto done = member.read(full_name, head); !done) return done.error();
  auto layout = read_npy_layout(RandomAccessFile::view(full_name, head), info.size);
  if (!layout) return layout.error();
  auto bytes = std::make_unique_for_overwrite<char[]>(layout->num_bytes);
  const size_t num_read = head.size() - layout->offset;
  if (num_read > 0) std::memcpy(bytes.get(), head.data() + layout->offset, num_read);
  const std::span<char> rest(bytes.get() + num_read, layout->num_bytes - num_read);
  if (auto done = member.read(full_name, rest); !done) return done.error();
  if (auto ended = member.expect_end(full_name); !ended) return ended.error();
  return take_array(*layout, std::move(bytes));
}

}  // namespace cohort::files
