/// Opens files that others may have made: such a file may be a pipe that nobody writes to, a device, or a folder.
#pragma once

#include <fcntl.h>

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::base {

/// Opens a regular file; closed on exec. Never waits for the other end of a pipe. The error text has only the reason: "No such
/// file or directory (ENOENT)", "it is a folder", "it is not a regular file".
Result<Fd> open_regular_file(const std::string& path, int flags = O_RDONLY, mode_t mode = 0600);

/// Lists the names in a folder, sorted. The error text has only the reason.
Result<std::vector<std::string>> names_in_folder(const std::string& path);

/// Opens /dev/null as each of the descriptors 0, 1 and 2 that is closed. Otherwise the first files that a program opens get these
/// numbers, and receive what is written to the standard streams. Call it in the first line of main().
void open_standard_streams();

}  // namespace cohort::base
