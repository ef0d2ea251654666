/// What the commands print: tables, numbers and JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::ckpt_cli {

using Json = nlohmann::ordered_json;

void print(const std::string& text);
/// With a newline; texts that are not UTF-8 get replacement characters.
void print_json(const Json& json);
/// Logs the error and returns `exit_code`.
int fail(const base::Error& error, int exit_code);

/// Columns of equal width, two spaces between; the first row is the heading. Numbers may be aligned to the right.
std::string table(const std::vector<std::vector<std::string>>& rows);

/// "[4, 3]"
std::string shape_text(const std::vector<int64_t>& shape);
/// Six significant digits, as "0.5", "1e-05", "-3".
std::string number_text(double number);
/// As Python prints it: None, True, 3, 0.5, "text", (1, 2), [], {}; long texts are cut.
std::string value_text(const base::PickleValue& value);
/// The name in quotes where it is empty or has spaces.
std::string name_text(const std::string& name);
/// "2026-11-25 07:12:01 UTC"
std::string time_text(int64_t seconds);
/// "1 tensor", "3 tensors".
std::string count_text(int64_t count, const std::string& thing);
/// Null for infinite numbers and NaN, which JSON does not have.
Json json_number(double number);

}  // namespace cohort::ckpt_cli
