#include "tools/cohort-ckpt/texts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "cohort/base/file/file.h"
#include "cohort/base/log/log.h"
#include "cohort/base/text/json_text.h"

namespace cohort::ckpt_cli {

using base::PickleKind;
using base::PickleValue;

namespace {

constexpr size_t kLongestText = 200;

std::string items_text(const std::vector<PickleValue>& items, const char* brackets) {
  std::string text(1, brackets[0]);
  for (size_t i = 0; i < items.size() && text.size() < kLongestText; ++i)
    text += (i ? ", " : "") + value_text(items[i]);
  return text + brackets[1];
}

std::string entries_text(const PickleValue& value) {
  std::string text = "{";
  for (const auto& entry : value.entries()) {
    if (text.size() > kLongestText) break;
    text += (text.size() > 1 ? ", " : "") + value_text(entry.key) + ": " + value_text(entry.value);
  }
  return text + "}";
}

// Returns 1.0, as Python does, not 1.
std::string float_text(double number) {
  const auto text = fmt::format("{}", number);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

}  // namespace

void print(const std::string& text) { (void)base::write_all(STDOUT_FILENO, text); }

void print_json(const Json& json) { print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

int fail(const base::Error& error, int exit_code) {
  base::log_error(error.describe());
  return exit_code;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}", row[i], widths[i] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string number_text(double number) { return fmt::format("{:.6g}", number); }

std::string value_text(const PickleValue& value) {
  switch (value.kind()) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return value.to_bool() ? "True" : "False";
    case PickleKind::kInt:
      return std::to_string(value.to_int());
    case PickleKind::kFloat:
      return float_text(value.to_float());
    case PickleKind::kComplex:
      return fmt::format("({}{:+}j)", value.to_complex().real(), value.to_complex().imag());
    case PickleKind::kText:
      return base::json_string(value.text().substr(0, kLongestText)) +
             (value.text().size() > kLongestText ? "..." : "");
    case PickleKind::kBytes:
      return fmt::format("<{} bytes>", value.text().size());
    case PickleKind::kList:
      return items_text(value.items(), "[]");
    case PickleKind::kTuple:
      return items_text(value.items(), "()");
    case PickleKind::kDict:
      return entries_text(value);
    default:
      return fmt::format("<{}>", base::kind_text(value.kind()));
  }
}

std::string name_text(const std::string& name) {
  const bool is_plain =
      !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > ' ' && c != 127; });
  return is_plain ? name : base::json_string(name);
}

std::string time_text(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[40];
  if (!gmtime_r(&time, &parts) || strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
    return std::to_string(seconds);
  return text;
}

std::string count_text(int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

Json json_number(double number) { return std::isfinite(number) ? Json(number) : Json(nullptr); }

}  // namespace cohort::ckpt_cli
