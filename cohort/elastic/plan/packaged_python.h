/// The Python and the package that a launcher belongs to if pip installed it, as the console script of torchcohort.
#pragma once

#include <optional>
#include <string>

namespace cohort::elastic {

/// pip puts the launcher into PREFIX/bin and the package's record into PREFIX/lib/python3.N/site-packages
/// (dist-packages on Debian). Returns PREFIX/bin/python3.N, or python3.N of PATH where there is none, as after
/// pip install --user; nothing if no Python has such a record, or `launcher` is not a path.
std::optional<std::string> packaged_python(const std::string& launcher);
/// The path of a program in the package's folder bin; nullopt if the package or the program is absent.
std::optional<std::string> packaged_program(const std::string& launcher, const std::string& program);

}  // namespace cohort::elastic
