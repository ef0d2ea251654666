/// One file by HTTP or HTTPS, through libcurl: certificates checked, redirects bounded, sizes bounded, no wait without an end.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "cohort/base/error/result.h"

namespace cohort::files {

struct DownloadOptions {
  /// Of the whole file. A server that announces or sends more is an error.
  uint64_t max_bytes = 0;
  std::chrono::seconds connect_timeout{30};
  /// How long no byte may come.
  std::chrono::seconds stall_timeout{60};
  /// Called about once a second or oftener with the bytes that are there, and all of them (0: not known). False
  /// stops the download.
  std::function<bool(uint64_t done, uint64_t total)> on_progress;
};

/// Writes what `url` gives to `path` (only its owner may read it), after the bytes that are there already, if the server can
/// continue; from the start if not. After an error the bytes that came stay, for the next try.
///
/// Proxies are those of the variables http_proxy, https_proxy and no_proxy.
/// Thread-safety: any number of downloads at once, to different paths.
base::Result<void> download_file(const std::string& url, const std::string& path, const DownloadOptions& options);

}  // namespace cohort::files
