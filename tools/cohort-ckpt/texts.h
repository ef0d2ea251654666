/// Texts of the commands: tables, numbers and JSON.
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
/// Prints JSON with a newline. Texts that are not UTF-8 get replacement characters.
void print_json(const Json& json);
/// Logs the error and returns `exit_code`.
int fail(const base::Error& error, int exit_code);

/// Returns columns of equal width with two spaces between them; the first row is the heading. Columns of numbers are aligned to
/// the right.
std::string table(const std::vector<std::vector<std::string>>& rows);

/// Returns "[4, 3]".
std::string shape_text(const std::vector<int64_t>& shape);
/// Returns six significant digits, as "0.5", "1e-05", "-3".
std::string number_text(double number);
/// Returns a value as Python prints it: None, True, 3, 0.5, "text", (1, 2), [], {}; long texts are cut.
std::string value_text(const base::PickleValue& value);
/// Returns the name, in quotes if it is empty or has spaces.
std::string name_text(const std::string& name);
/// Returns "2026-11-25 07:12:01 UTC".
std::string time_text(int64_t seconds);
/// Returns "1 tensor" or "3 tensors".
std::string count_text(int64_t count, const std::string& thing);
/// Returns null for infinite numbers and NaN, which JSON does not have.
Json json_number(double number);

}  // namespace cohort::ckpt_cli
