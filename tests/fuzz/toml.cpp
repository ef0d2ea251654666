// TOML files of options. What is read is written in another form, and is the same then.
#include <cmath>
#include <string>

#include "cohort/base/text/json_text.h"
#include "cohort/report/config/toml.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto entries = report::parse_toml("a.toml", fuzz::text_of(data, size));
  if (!entries) {
    FUZZ_CHECK(entries.error().describe().size() < 2000);
    return 0;
  }
  std::string text;
  for (const auto& entry : *entries) {
    text += base::json_string(entry.name) + " = " + report::toml_text(entry.value) + "\n";
  }
  const auto again = report::parse_toml("b.toml", text);
  if (!again) FUZZ_CHECK(text.size() > size_t{1} << 20);
  if (!again) return 0;
  FUZZ_CHECK(again->size() == entries->size());
  for (size_t i = 0; i < entries->size(); ++i) {
    FUZZ_CHECK((*again)[i].name == (*entries)[i].name);
    // As text: what is no number is not equal to itself.
    FUZZ_CHECK(report::toml_text((*again)[i].value) == report::toml_text((*entries)[i].value));
  }
  return 0;
}
