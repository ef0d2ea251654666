// CSV files: the first byte says the format. What is read is written with quotes around every field, and is the same then.
#include <vector>

#include "cohort/base/text/text.h"
#include "cohort/extras/files/arrays/csv_reader.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::files {
namespace {

struct CsvContent {
  std::vector<std::string> names = {};
  std::vector<std::string> fields = {};
  bool is_whole = false;
  bool operator==(const CsvContent&) const = default;
};

CsvContent read_content(std::string_view text, CsvFormat format) {
  auto reader = CsvReader::open(RandomAccessFile::view("a.csv", text), format);
  if (!reader) {
    FUZZ_CHECK(reader.error().describe().size() < 2000);
    return {};
  }
  CsvContent content{.names = reader->column_names()};
  for (;;) {
    const auto is_there = reader->next();
    if (!is_there) FUZZ_CHECK(is_there.error().describe().size() < 2000);
    if (!is_there) return content;
    content.is_whole = !*is_there;
    if (content.is_whole) return content;
    for (size_t i = 0; i < content.names.size(); ++i) {
      content.fields.emplace_back(reader->field(i));
      const auto whole = reader->integer(i);
      if (whole && *whole < (int64_t{1} << 53) && *whole > -(int64_t{1} << 53)) {
        FUZZ_CHECK(reader->number(i).value() == static_cast<double>(*whole));
      }
    }
  }
}

void append_quoted(std::string* text, const std::string& field, CsvFormat format, bool is_last) {
  *text += format.quote + base::replace_all(field, std::string(1, format.quote), std::string(2, format.quote)) +
           format.quote + (is_last ? '\n' : format.delimiter);
}

}  // namespace
}  // namespace cohort::files

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  if (size == 0) return 0;
  files::CsvFormat format;
  format.has_header = (data[0] & 1) != 0;
  if (data[0] & 2) format.delimiter = ';';
  if (data[0] & 4) format.quote = '\'';
  const auto content = files::read_content(fuzz::text_of(data + 1, size - 1), format);
  if (!content.is_whole) return 0;
  std::string text;
  const size_t width = content.names.size();
  for (size_t i = 0; format.has_header && i < width; ++i) {
    files::append_quoted(&text, content.names[i], format, i + 1 == width);
  }
  for (size_t i = 0; i < content.fields.size(); ++i) {
    files::append_quoted(&text, content.fields[i], format, (i + 1) % width == 0);
  }
  FUZZ_CHECK(files::read_content(text, format) == content);
  return 0;
}
