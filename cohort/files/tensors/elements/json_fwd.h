/// Only declares `Json`, so that headers that name it do not include all of nlohmann/json.hpp.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace cohort::files {

using Json = nlohmann::json;

}  // namespace cohort::files
