/// `Json`, declared only: a header that names it does not cost its readers the whole of nlohmann/json.hpp.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace cohort::files {

using Json = nlohmann::json;

}  // namespace cohort::files
