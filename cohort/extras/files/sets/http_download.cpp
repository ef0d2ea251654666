#include "cohort/extras/files/sets/http_download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>

#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"
#include "cohort/version.h"

namespace cohort::files {
namespace {

constexpr long kMaxRedirects = 5;
constexpr long kRangeNotSatisfiable = 416;
constexpr long kOk = 200;

class Transfer {
 public:
  Transfer(const std::string& url, const std::string& path, const DownloadOptions& options)
      : url_(url), path_(path), options_(options) {}

  base::Result<void> run() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    auto file = base::open_regular_file(path_, O_WRONLY | O_CREAT | O_NOFOLLOW);
    if (!file) return base::Error(fmt::format("cannot write \"{}\": {}", path_, file.error().message()));
    fd_ = *std::move(file);
    const off_t end = lseek(fd_.get(), 0, SEEK_END);
    if (end < 0) return base::Error(fmt::format("cannot write \"{}\": {}", path_, base::errno_text(errno)));
    num_bytes_ = static_cast<uint64_t>(end);
    CURLcode code = perform();
    if (status() == kRangeNotSatisfiable && num_bytes_ > 0) {
      if (auto emptied = start_over(); !emptied) return emptied;
      code = perform();
    }
    if (problem_) return std::move(*problem_);
    if (code != CURLE_OK) return base::Error(fmt::format("cannot download {}: {}", url_, reason(code)));
    if (fsync(fd_.get()) != 0) {
      return base::Error(fmt::format("cannot write \"{}\": {}", path_, base::errno_text(errno)));
    }
    return {};
  }

 private:
  CURLcode perform() {
    curl_.reset(curl_easy_init());
    if (!curl_) return CURLE_OUT_OF_MEMORY;
    first_byte_ = num_bytes_;
    set(CURLOPT_URL, url_.c_str());
    set(CURLOPT_USERAGENT, "cohort-data/" COHORT_VERSION);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMaxRedirects);
#if LIBCURL_VERSION_NUM >= 0x075500
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    set(CURLOPT_REDIR_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options_.connect_timeout.count()));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_timeout.count()));
    const std::string range = fmt::format("{}-", first_byte_);
    if (first_byte_ > 0) set(CURLOPT_RANGE, range.c_str());
    set(CURLOPT_WRITEFUNCTION, &Transfer::write);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::progress);
    set(CURLOPT_XFERINFODATA, this);
    return curl_easy_perform(curl_.get());
  }

  template <typename Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(curl_.get(), option, value);
  }

  long status() const {
    long code = 0;
    if (curl_) curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  base::Result<void> start_over() {
    if (ftruncate(fd_.get(), 0) != 0 || lseek(fd_.get(), 0, SEEK_SET) != 0) {
      return base::Error(fmt::format("cannot write \"{}\": {}", path_, base::errno_text(errno)));
    }
    num_bytes_ = first_byte_ = 0;
    return {};
  }

  base::Result<void> take(std::string_view bytes) {
    // A server without ranges answers with the whole file.
    if (first_byte_ > 0 && status() == kOk) {
      if (auto emptied = start_over(); !emptied) return emptied;
    }
    if (bytes.size() > options_.max_bytes - std::min(num_bytes_, options_.max_bytes)) return too_large();
    if (auto written = base::write_all(fd_.get(), bytes, path_); !written) return written;
    num_bytes_ += bytes.size();
    return {};
  }

  base::Error too_large() const {
    return base::Error(fmt::format("cannot download {}: it is larger than {}, the most that this file may have", url_,
                                   base::format_bytes(options_.max_bytes)));
  }

  static size_t write(char* data, size_t size, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    auto taken = transfer.take({data, size * count});
    if (taken) return size * count;
    transfer.problem_.emplace(taken.error());
    return 0;
  }

  static int progress(void* self, curl_off_t announced, curl_off_t, curl_off_t, curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    const auto total = announced > 0 ? transfer.first_byte_ + static_cast<uint64_t>(announced) : 0;
    if (total > transfer.options_.max_bytes && transfer.status() < 300) {
      transfer.problem_.emplace(transfer.too_large());
      return 1;
    }
    const auto& on_progress = transfer.options_.on_progress;
    if (!on_progress || on_progress(transfer.num_bytes_, total)) return 0;
    transfer.problem_.emplace(fmt::format("the download of {} was stopped", transfer.url_));
    return 1;
  }

  std::string reason(CURLcode code) const {
    switch (code) {
      case CURLE_HTTP_RETURNED_ERROR:
        return fmt::format("the server answered {}", status());
      case CURLE_TOO_MANY_REDIRECTS:
        return fmt::format("it redirects more than {} times", kMaxRedirects);
      case CURLE_PARTIAL_FILE:
        return fmt::format("the connection ended after {} bytes, before the end of the file", num_bytes_);
      case CURLE_OPERATION_TIMEDOUT: {
        curl_off_t connected = 0;
        curl_easy_getinfo(curl_.get(), CURLINFO_CONNECT_TIME_T, &connected);
        return connected > 0 ? fmt::format("no data came for {} s", options_.stall_timeout.count())
                             : fmt::format("no connection in {} s", options_.connect_timeout.count());
      }
      default:
        return curl_easy_strerror(code);
    }
  }

  const std::string& url_;
  const std::string& path_;
  const DownloadOptions& options_;
  base::Fd fd_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_{nullptr, curl_easy_cleanup};
  uint64_t first_byte_ = 0;  // requested first
  uint64_t num_bytes_ = 0;   // in the file so far
  std::optional<base::Error> problem_;
};

}  // namespace

base::Result<void> download_file(const std::string& url, const std::string& path, const DownloadOptions& options) {
  return Transfer(url, path, options).run();
}

}  // namespace cohort::files
