#include "cohort/snapshot/client/partner_copy.h"

#include <sys/socket.h>

#include <span>
#include <utility>
#include <vector>

#include "cohort/snapshot/choice.h"
#include "cohort/snapshot/client/file_slots.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

void PartnerCopy::send(ServerConnection& own, const std::string& where, VersionFile& file, const Version& version,
                       int slot) {
  Result<void> sent;
  if (!partner_) {
    Result<RemoteServerConnection> connected = RemoteServerConnection::connect(own, {place_.node, node()}, where);
    const std::lock_guard lock(mutex_);
    if (connected) {
      partner_.emplace(std::move(*connected));
      socket_ = partner_->socket();
    } else {
      sent = connected.error();
    }
  }
  if (partner_) sent = send_to(*partner_, file, version, slot);
  if (sent) return;
  const std::lock_guard lock(mutex_);
  socket_ = -1;
  partner_.reset();
  sizes_[0] = sizes_[1] = 0;
  if (!is_interrupted_) problem_ = sent.error().describe();
}

// Writes the copy as a file of this node is written: it counts as unfinished until the last word.
Result<void> PartnerCopy::send_to(RemoteServerConnection& partner, VersionFile& file, const Version& version,
                                  int slot) {
  const std::string id = copy_id(place_.rank, slot);
  const uint64_t end = parts_of(version)->shared;
  if (sizes_[slot] < end) {
    sizes_[slot] = end + kSpareBytes;
    if (Result<void> made = partner.make(id, sizes_[slot]); !made) return made;
  }
  const std::span<const std::byte> bytes = file.bytes();
  const std::vector<std::byte> nothing(kHeaderBytes);
  if (Result<void> sent = partner.write(id, 0, nothing); !sent) return sent;
  if (end > kHeaderBytes) {
    if (Result<void> sent = partner.write(id, kHeaderBytes, bytes.subspan(kHeaderBytes, end - kHeaderBytes)); !sent)
      return sent;
  }
  return partner.write(id, 0, bytes.first(kHeaderBytes));
}

void PartnerCopy::interrupt() {
  const std::lock_guard lock(mutex_);
  is_interrupted_ = true;
  if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

std::string PartnerCopy::take_problem() {
  const std::lock_guard lock(mutex_);
  return std::exchange(problem_, "");
}

}  // namespace cohort::snapshot
