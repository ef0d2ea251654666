/// Writes JSON's values as a Python pickle of protocol 2, which pickle.load reads without importing anything.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace cohort::shm {

/// Requires less nesting than base::kMaxPickleDepth. Texts that are not UTF-8 get replacement characters.
std::string pickle(const nlohmann::ordered_json& value);

}  // namespace cohort::shm
