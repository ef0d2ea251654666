/// Downloads a file by HTTP or HTTPS with libcurl. Checks certificates, and limits redirects, sizes and waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "cohort/base/error/result.h"

namespace cohort::files {

struct DownloadOptions {
  /// The largest size of the file. A server that announces or sends more is an error.
  uint64_t max_bytes = 0;
  std::chrono::seconds connect_timeout{30};
  /// The longest time without a byte.
  std::chrono::seconds stall_timeout{60};
  /// Called at least about once a second with the bytes so far, and the total (0 if not known). If it returns false, the download
  /// stops.
  std::function<bool(uint64_t done, uint64_t total)> on_progress;
};

/// Writes the content of `url` to `path`, readable only by its owner. Continues after existing bytes if the server supports it,
/// else begins anew. After an error the bytes stay for the next attempt.
///
/// Uses the proxies of the variables http_proxy, https_proxy and no_proxy. Thread-safety: any number of downloads at once, to
/// different paths.
base::Result<void> download_file(const std::string& url, const std::string& path, const DownloadOptions& options);

}  // namespace cohort::files
