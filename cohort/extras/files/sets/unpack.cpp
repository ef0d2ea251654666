#include "cohort/extras/files/sets/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "cohort/base/text/text.h"

namespace cohort::files {
namespace {

using Archive = std::unique_ptr<archive, decltype(&archive_read_free)>;

class Unpacking {
 public:
  Unpacking(const InputFile& file, const UnpackLimits& limits, UnpackTarget& target)
      : file_(file), limits_(limits), target_(target) {}

  base::Result<void> open(bool is_tar) {
    if (!archive_) return base::Error("cannot unpack: no memory");
    archive_read_support_filter_gzip(archive_.get());
    if (is_tar) {
      archive_read_support_format_tar(archive_.get());
    } else {
      archive_read_support_format_raw(archive_.get());
      archive_read_support_format_empty(archive_.get());
    }
    if (!file_.bytes().starts_with("\x1f\x8b")) return file_.error_at(0, "gzip's first bytes, 1f 8b", "others");
    const int code = archive_read_open_memory(archive_.get(), file_.bytes().data(), file_.size());
    if (code != ARCHIVE_OK) return fail();
    return {};
  }

  /// Returns false at the end of the archive.
  base::Result<bool> next() {
    const int code = archive_read_next_header(archive_.get(), &entry_);
    if (code == ARCHIVE_EOF) return false;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return fail();
    // Allows one gzip around the plain file, as libarchive would also open a gzip in a gzip in a gzip.
    if (archive_filter_count(archive_.get()) != 2) return refuse("is compressed several times");
    if (++num_entries_ > limits_.max_entries) {
      return refuse(fmt::format("has more than {} entries", limits_.max_entries));
    }
    return true;
  }

  base::Result<void> take_entry() {
    const char* const name = archive_entry_pathname(entry_);
    if (!name) return refuse("has an entry whose name cannot be read");
    if (const auto problem = unsafe_name_problem(name); !problem.empty()) {
      return refuse(fmt::format("holds \"{}\", which {}", name, problem));
    }
    const bool is_link = archive_entry_hardlink(entry_) || archive_entry_symlink(entry_);
    if (!is_link && archive_entry_filetype(entry_) == AE_IFDIR) return target_.add_folder(name);
    if (!is_link && archive_entry_filetype(entry_) == AE_IFREG) return take_contents(name);
    return refuse(fmt::format("holds \"{}\", which is {}", name, is_link ? "a link" : "neither a file nor a folder"));
  }

  base::Result<void> take_contents(const std::string& name) {
    if (auto begun = target_.begin_file(name); !begun) return begun;
    std::vector<char> buffer(1 << 16);
    for (;;) {
      const la_ssize_t size = archive_read_data(archive_.get(), buffer.data(), buffer.size());
      if (size < 0) return fail();
      if (size == 0) return {};
      num_bytes_ += static_cast<uint64_t>(size);
      if (num_bytes_ > limits_.max_bytes) {
        return refuse(fmt::format("holds more than the {} that it may", base::format_bytes(limits_.max_bytes)));
      }
      if (auto written = target_.write({buffer.data(), static_cast<size_t>(size)}); !written) return written;
    }
  }

 private:
  base::Error refuse(const std::string& what) const {
    return base::Error(fmt::format("cannot unpack \"{}\": it {}", file_.path(), what));
  }
  // Names the position in the compressed bytes.
  base::Error fail() const {
    const char* const text = archive_error_string(archive_.get());
    return base::Error(fmt::format("cannot unpack \"{}\", at byte {} of {}: {}", file_.path(),
                                   archive_filter_bytes(archive_.get(), -1), file_.size(), text ? text : "damaged"));
  }

  const InputFile& file_;
  const UnpackLimits& limits_;
  UnpackTarget& target_;
  Archive archive_{archive_read_new(), archive_read_free};
  archive_entry* entry_ = nullptr;
  uint64_t num_bytes_ = 0;
  int num_entries_ = 0;
};

}  // namespace

std::string unsafe_name_problem(std::string_view name) {
  if (name.empty()) return "has no name";
  if (name.starts_with('/')) return "is an absolute path";
  for (const std::string& part : base::split(name, '/')) {
    if (part == "..") return "has \"..\" in its name";
  }
  return "";
}

base::Result<void> unpack_gz(const InputFile& archive, const std::string& name, const UnpackLimits& limits,
                             UnpackTarget& target) {
  Unpacking unpacking(archive, limits, target);
  if (auto opened = unpacking.open(/*is_tar=*/false); !opened) return opened;
  auto has_entry = unpacking.next();
  if (!has_entry) return std::move(has_entry).error();
  if (!*has_entry) return target.begin_file(name);
  return unpacking.take_contents(name);
}

base::Result<void> unpack_tar_gz(const InputFile& archive, const UnpackLimits& limits, UnpackTarget& target) {
  Unpacking unpacking(archive, limits, target);
  if (auto opened = unpacking.open(/*is_tar=*/true); !opened) return opened;
  for (;;) {
    auto has_entry = unpacking.next();
    if (!has_entry) return std::move(has_entry).error();
    if (!*has_entry) return {};
    if (auto taken = unpacking.take_entry(); !taken) return taken;
  }
}

}  // namespace cohort::files
