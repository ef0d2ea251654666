/// Identifies this machine, and the namespaces of this process on it.
#pragma once

#include <string>

namespace cohort::base {

/// Calls gethostname; "unknown" if that fails.
std::string host_name();
/// An id that changes whenever the kernel starts; containers of one machine have the same.
const std::string& boot_id();
/// Reads "pid:[4026531836]" from "/proc/self/ns/pid": two processes in one namespace read the same. Empty if it cannot be read.
std::string namespace_of(const char* path);

}  // namespace cohort::base
