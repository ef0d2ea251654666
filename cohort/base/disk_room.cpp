#include "cohort/base/disk_room.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <utility>

#include "cohort/base/text.h"

namespace cohort::base {

Error with_room_hint(Error error, int reason, const std::string& folder) {
  struct statvfs room {};
  if (reason != ENOSPC || statvfs(folder.c_str(), &room) != 0) return error;
  return std::move(error).with_hint("only " + format_bytes(room.f_bavail * room.f_frsize) +
                                    " are free there; free some space, or choose another disk");
}

}  // namespace cohort::base
