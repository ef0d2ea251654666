/// Finds the Python and the package to which a launcher belongs if pip installed it, as the console script of torchcohort.
#pragma once

#include <optional>
#include <string>

namespace cohort::elastic {

/// pip installs the launcher in PREFIX/bin and the package's record in PREFIX/lib/python3.N/site-packages (dist-packages on
/// Debian). Returns PREFIX/bin/python3.N, or python3.N of PATH if that does not exist, as after pip install --user. Returns
/// nothing if no Python has such a record, or `launcher` is not a path.
std::optional<std::string> packaged_python(const std::string& launcher);
/// Returns the path of a program in the package's folder bin; nothing if the package or the program is absent.
std::optional<std::string> packaged_program(const std::string& launcher, const std::string& program);

}  // namespace cohort::elastic
