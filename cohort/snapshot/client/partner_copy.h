/// PartnerCopy: the copy of this rank's own bytes on the next node's snapshot server, for a job that loses this node.
///
/// Thread-safety: one thread calls send(); any thread may call the others.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "cohort/snapshot/place.h"
#include "cohort/snapshot/server_connection.h"
#include "cohort/snapshot/version_file.h"

namespace cohort::snapshot {

class PartnerCopy {
 public:
  /// `place` must outlive this object.
  explicit PartnerCopy(const Place& place) : place_(place) {}

  int node() const { return (place_.node + 1) % place_.num_nodes; }
  /// Sends the content of `file`, of slot `slot`. For `where` see RemoteServerConnection::connect. Blocks as a
  /// RemoteServerConnection does. A failure is a problem to report and not an error: training goes on without a copy.
  void send(ServerConnection& own, const std::string& where, VersionFile& file, const Version& version, int slot);
  /// Interrupts send(), because this rank ends.
  void interrupt();
  /// Returns, once, why there is no copy; "" if there is one.
  std::string take_problem();

 private:
  base::Result<void> send_to(RemoteServerConnection& partner, VersionFile& file, const Version& version, int slot);

  const Place& place_;
  std::optional<RemoteServerConnection> partner_;
  uint64_t sizes_[2] = {0, 0};

  std::mutex mutex_;  ///< guards the members below
  int socket_ = -1;
  bool is_interrupted_ = false;
  std::string problem_;
};

}  // namespace cohort::snapshot
