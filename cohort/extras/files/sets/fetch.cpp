#include "cohort/extras/files/sets/fetch.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "cohort/base/file/file.h"
#include "cohort/base/net/url.h"
#include "cohort/base/process/lock_file.h"
#include "cohort/base/text/text.h"
#include "cohort/extras/files/sets/folder_target.h"
#include "cohort/extras/files/sets/http_download.h"

namespace cohort::files {
namespace {

namespace fs = std::filesystem;

std::string with_mirror(const std::string& url, const std::string& mirror) {
  if (mirror.empty()) return url;
  const bool ends_with_slash = mirror.ends_with('/');
  return mirror.substr(0, mirror.size() - (ends_with_slash ? 1 : 0)) + base::parse_url(url).path;
}

bool is_at(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void remove_quietly(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
}

base::Result<void> move_to(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) return base::Error(fmt::format("cannot rename \"{}\" to \"{}\": {}", from, to, error.message()));
  return {};
}

class FileFetch {
 public:
  FileFetch(const SetFile& file, const std::string& root, const FetchOptions& options)
      : file_(file),
        options_(options),
        url_(with_mirror(file.url, options.mirror)),
        target_(root + "/" + file.target),
        folder_(fs::path(target_).parent_path().string()),
        download_(folder_ + "/." + fs::path(file.url).filename().string() + ".part"),
        unpacked_(folder_ + "/." + fs::path(target_).filename().string() + ".unpacking") {}

  bool is_there() const { return is_at(target_); }

  base::Result<void> run() {
    if (auto made = base::make_directories(folder_); !made) return made;
    const bool was_begun = is_at(download_);
    auto got = download();
    // The existing bytes may be of another version of the file, so start once from the beginning.
    if (got && !*got && was_begun) got = download();
    if (!got) return std::move(got).error();
    if (!*got) return base::Error(mismatch_);
    if (auto done = file_.form == SetFile::Form::kPlain ? move_to(download_, target_) : unpack(); !done) return done;
    remove_quietly(download_);
    return {};
  }

 private:
  base::Result<bool> digest_is_right() {
    auto digest = file_digest(download_, file_.digest.algorithm());
    if (!digest) return std::move(digest).error();
    if (*digest == file_.digest.hex) return true;
    mismatch_ = fmt::format("{} is not the file that was published: its {} is {}, not {}; the download was deleted",
                            url_, file_.digest.algorithm(), *digest, file_.digest.hex);
    return false;
  }

  // Returns false if the bytes are not the published ones.
  base::Result<bool> download() {
    if (is_at(download_)) {
      auto is_whole = digest_is_right();
      if (is_whole && *is_whole) return true;
    }
    DownloadOptions options{.max_bytes = file_.max_bytes,
                            .connect_timeout = options_.connect_timeout,
                            .stall_timeout = options_.stall_timeout,
                            .on_progress = {}};
    if (options_.on_progress) {
      options.on_progress = [this](uint64_t done, uint64_t total) { return options_.on_progress(file_, done, total); };
    }
    if (auto downloaded = download_file(url_, download_, options); !downloaded) {
      std::error_code error;
      if (fs::file_size(download_, error) == 0) remove_quietly(download_);
      return downloaded.error();
    }
    auto is_right = digest_is_right();
    if (is_right && !*is_right) remove_quietly(download_);
    return is_right;
  }

  base::Result<void> unpack() {
    remove_quietly(unpacked_);  // a killed process may have left it
    if (::mkdir(unpacked_.c_str(), 0700) != 0) {
      return base::Error(fmt::format("cannot create the folder \"{}\": {}", unpacked_, base::errno_text(errno)));
    }
    auto result = unpack_and_move();
    remove_quietly(unpacked_);
    return result;
  }

  base::Result<void> unpack_and_move() {
    const auto archive = InputFile::map(download_);
    if (!archive) return archive.error();
    FolderTarget target(unpacked_);
    const std::string name = fs::path(target_).filename().string();
    const UnpackLimits limits{.max_bytes = file_.max_unpacked_bytes};
    const bool is_tar = file_.form == SetFile::Form::kTarGzip;
    auto unpacked = is_tar ? unpack_tar_gz(*archive, limits, target) : unpack_gz(*archive, name, limits, target);
    if (!unpacked) return unpacked;
    std::error_code error;
    if (is_tar && !fs::is_directory(unpacked_ + "/" + name, error)) {
      return base::Error(fmt::format("{} holds no folder \"{}\"", url_, name));
    }
    return move_to(unpacked_ + "/" + name, target_);
  }

  const SetFile& file_;
  const FetchOptions& options_;
  const std::string url_;
  const std::string target_;
  const std::string folder_;
  const std::string download_;
  const std::string unpacked_;
  std::string mismatch_;
};

// Unpacks to a folder, or to files in one.
std::string folder_of_set(const std::string& target) {
  std::error_code error;
  return fs::is_directory(target, error) ? target : fs::path(target).parent_path().string();
}

base::Error cannot_fetch(const OfficialSet& set, const std::string& root, base::Error cause) {
  return base::Error(fmt::format("cannot fetch {} into \"{}\"", set.name, root))
      .caused_by(std::move(cause))
      .with_hint(fmt::format(
          "without a network here, run this elsewhere and copy the folder: cohort-data fetch {0} --root DIR\n"
          "  hint: for a small synthetic dataset in the same format, run: cohort-data make {1} --root {2}",
          set.name, set.synthetic_dataset, root));
}

base::Result<int> fetch_files(const OfficialSet& set, const std::string& root, const FetchOptions& options) {
  if (auto made = base::make_directories(root); !made) return made.error();
  auto lock = base::LockFile::take(fmt::format("{}/.{}.lock", root, set.name), options.lock_timeout);
  if (!lock) return std::move(lock).error();
  int num_downloaded = 0;
  for (const SetFile& file : set.files) {
    FileFetch file_fetch(file, root, options);
    if (file_fetch.is_there()) continue;
    if (auto fetched = file_fetch.run(); !fetched) return fetched.error();
    ++num_downloaded;
  }
  return num_downloaded;
}

}  // namespace

base::Result<int> fetch(const OfficialSet& set, const std::string& root, const FetchOptions& options) {
  for (const SetFile& file : set.files) {
    const std::string folder = folder_of_set(root + "/" + file.target);
    const bool is_synthetic =
        is_at(folder + "/" + kSyntheticNote) || is_at(folder + "/STAND-IN.txt");  // the name before
    if (!is_synthetic) continue;
    return base::Error(fmt::format("\"{}\" holds a synthetic dataset of cohort-data make, not {}", folder, set.name))
        .with_hint("remove that folder, or choose another one for the published dataset");
  }
  bool is_there = true;
  for (const SetFile& file : set.files) is_there = is_there && is_at(root + "/" + file.target);
  if (is_there) return 0;  // also in a folder that cannot be written to
  auto fetched = fetch_files(set, root, options);
  if (!fetched) return cannot_fetch(set, root, std::move(fetched).error());
  return fetched;
}

base::Result<int> fetch(const std::string& name, const std::string& root, const FetchOptions& options) {
  if (const OfficialSet* const set = find_official_set(name)) return fetch(*set, root, options);
  std::vector<std::string> names;
  for (const OfficialSet& set : official_sets()) names.push_back(set.name);
  return base::Error(fmt::format("there is no dataset \"{}\" in the catalog{}; it has {}", name,
                                 base::did_you_mean(name, names), base::join(names, ", ")));
}

}  // namespace cohort::files
