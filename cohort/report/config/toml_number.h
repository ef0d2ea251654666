/// The numbers of TOML.
#pragma once

#include <optional>
#include <string>

#include "cohort/report/config/toml.h"

namespace cohort::report {

/// "1_000", "0xff", "0o17", "0b1", "-1.5e3", "inf", "nan"; nothing for what is none, or does not fit.
std::optional<TomlScalar> parse_toml_number(const std::string& word);

}  // namespace cohort::report
