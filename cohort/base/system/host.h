/// What tells this machine, and the namespaces of this process on it, from others.
#pragma once

#include <string>

namespace cohort::base {

/// gethostname; "unknown" if that fails.
std::string host_name();
/// Changes with every start of the kernel; containers of one machine have the same.
const std::string& boot_id();
/// "pid:[4026531836]" of "/proc/self/ns/pid": two processes in one namespace read the same. Empty if it cannot be read.
std::string namespace_of(const char* path);

}  // namespace cohort::base
