#include "cohort/report/records/json_lines_log.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

#include "cohort/base/text/json_text.h"
#include "cohort/files/tensors/elements/checked_json.h"

namespace cohort::report {
namespace {

using files::Json;

constexpr const char* kExpectedRecord = R"(a record such as {"step": 12, "time": 1.7e9, "loss": 0.5})";

std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return number_text(value);
}

std::string json_value(const HyperparameterValue& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* text = std::get_if<std::string>(&value)) return base::json_string(*text);
  return json_number(std::get<double>(value));
}

std::optional<double> number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (json == "Infinity") return std::numeric_limits<double>::infinity();
  if (json == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// Returns nothing for a line of hyperparameters.
base::Result<std::optional<RunRecord>> parse_record(const std::string& path, int64_t number, std::string_view line) {
  const base::Error error = line_error(path, number, kExpectedRecord, line);
  auto parsed = files::parse_checked_json(line, "record", 4);
  if (!parsed) return error;
  const Json& json = parsed->json;
  if (json.contains("hyperparameters")) return std::optional<RunRecord>();
  RunRecord record;
  if (!json.contains("step") || !json["step"].is_number_integer() || json["step"].get<int64_t>() < 0) return error;
  record.step = json["step"].get<int64_t>();
  for (const std::string& name : parsed->names) {
    const std::optional<double> value = number_of(json[name]);
    if (!value) return error;
    if (name == "time") record.time = *value;
    if (name != "time" && name != "step") record.values.emplace_back(name, *value);
  }
  return std::optional(std::move(record));
}

}  // namespace

base::Result<JsonLinesLog> JsonLinesLog::open(const std::string& path, const RunLogOptions& options) {
  auto file = LineFile::open(path, options.overwrite ? AppendFile::Start::kEmpty : AppendFile::Start::kGoOn);
  if (!file) return file.error();
  JsonLinesLog log(std::move(file).value());
  const auto keep = [&](int64_t number, std::string_view line) -> base::Result<std::string_view> {
    auto record = parse_record(path, number, line);
    if (!record) return record.error();
    const bool is_purged = options.purge_step && *record && (*record)->step >= *options.purge_step;
    return is_purged ? std::string_view() : line;
  };
  if (auto purged = log.file_.change_lines(keep); !purged) return purged.error();
  return log;
}

base::Result<void> JsonLinesLog::add(const RunRecord& record) {
  if (auto checked = check_record(record); !checked) return checked.error();
  std::string line = fmt::format("{{\"step\": {}, \"time\": {:.6f}", record.step, record.time);
  for (const auto& [name, value] : record.values) {
    line += fmt::format(", {}: {}", base::json_string(name), json_number(value));
  }
  return file_.append(line + "}\n");
}

base::Result<void> JsonLinesLog::add_hyperparameters(const HyperparameterList& values, double time) {
  if (auto checked = check_hyperparameters(values); !checked) return checked.error();
  std::string line;
  for (const auto& [name, value] : values) {
    line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", base::json_string(name), json_value(value));
  }
  return file_.append(fmt::format("{{\"hyperparameters\": {{{}}}, \"time\": {:.6f}}}\n", line, time));
}

base::Result<void> read_json_lines(const std::string& path, const std::function<void(const RunRecord&)>& visit) {
  return visit_lines(path, [&](int64_t number, std::string_view line) -> base::Result<void> {
    auto record = parse_record(path, number, line);
    if (!record) return record.error();
    if (*record) visit(**record);
    return {};
  });
}

}  // namespace cohort::report
