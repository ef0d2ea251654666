/// CsvReader: the records of a CSV file, one after the other, by RFC 4180: quoted fields may contain delimiters, line breaks and
/// doubled quotes. Lines end in LF or CRLF; the last one may lack its end. Skips empty lines, as pandas does, and a UTF-8 byte
/// order mark at the start.
///
/// Reads the file in pieces, so it may be larger than the memory. A record may have 16 MiB.
///
/// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/files/input/random_access_file.h"

namespace cohort::files {

struct CsvFormat {
  char delimiter = ',';
  char quote = '"';
  /// The first record has the names of the columns. If false, they are named "0", "1", "2" and so on.
  bool has_header = true;
};

class CsvReader {
 public:
  /// Reads the names of the columns. A file without a record is an error, and so are two columns of the same name.
  static base::Result<CsvReader> open(const std::string& path, CsvFormat format = {});
  static base::Result<CsvReader> open(RandomAccessFile file, CsvFormat format = {});

  const std::vector<std::string>& column_names() const { return names_; }
  /// Returns the index of the column of that name; fails for other names, and lists the columns.
  base::Result<size_t> column(const std::string& name) const;

  /// Goes to the next record. Returns false at the end of the file. A record with more or fewer fields than there are columns is
  /// an error.
  base::Result<bool> next();
  /// A field of the record, valid until next().
  std::string_view field(size_t column) const;
  /// Converts the field to a number; it may have spaces around it. An error names the file, the line, the column and the text.
  base::Result<int64_t> integer(size_t column) const;
  base::Result<double> number(size_t column) const;

  /// The line, counted from 1, at which the record begins.
  int64_t line() const { return line_; }
  /// `"a.csv", line 7, column "age": expected a whole number, but found "x"`
  base::Error error_at(size_t column, std::string_view expected) const;

 private:
  CsvReader(RandomAccessFile file, CsvFormat format) : file_(std::move(file)), format_(format) {}
  base::Error error_at_line(int64_t line, std::string_view expected, std::string_view found) const;
  base::Result<bool> has_byte();
  base::Result<bool> read_record();
  base::Result<void> read_quoted();
  base::Result<void> read_plain();
  base::Result<bool> end_of_field();
  base::Result<void> append(size_t begin, size_t end);

  RandomAccessFile file_;
  CsvFormat format_;
  std::vector<std::string> names_;
  std::string text_;          ///< the fields of the record, one after the other
  std::vector<size_t> ends_;  ///< the end of each field in it
  int64_t line_ = 0;
  int64_t next_line_ = 1;
  bool has_first_ = false;  ///< whether the first record was read already, without a header
  uint64_t position_ = 0;   ///< of the next piece in the file
  std::string piece_;
  size_t at_ = 0;  ///< position in the piece
};

}  // namespace cohort::files
