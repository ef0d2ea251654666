#include "cohort/report/records/line_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "cohort/base/file/atomic_file.h"
#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/elements/shown_text.h"

namespace cohort::report {
namespace {

constexpr uint64_t kPieceOfLines = uint64_t{1} << 20;
constexpr size_t kLongestLine = size_t{16} << 20;

base::Error too_long(const std::string& path, int64_t number) {
  return base::Error(
      fmt::format("\"{}\", line {}: it has more than {} bytes, the limit for a record", path, number, kLongestLine));
}

}  // namespace

base::Error line_error(const std::string& path, int64_t number, std::string_view expected, std::string_view found) {
  return base::Error(fmt::format("\"{}\", line {}: expected {}, but found \"{}\"", path, number, expected,
                                 files::shortened(std::string(found.substr(0, 1000)))));
}

base::Result<void> visit_lines(const std::string& path, const LineVisitor& visit) {
  auto file = files::RandomAccessFile::open(path);
  if (!file) return file.error();
  std::string piece, rest;
  int64_t number = 1;
  for (uint64_t at = 0; at < file->size(); at += piece.size()) {
    piece.resize(std::min(kPieceOfLines, file->size() - at));
    if (auto read = file->read(at, std::span<char>(piece), "lines"); !read) return read.error();
    size_t begin = 0;
    for (size_t end; (end = piece.find('\n', begin)) != std::string::npos; begin = end + 1, ++number) {
      std::string_view line = std::string_view(piece).substr(begin, end - begin);
      if (!rest.empty()) line = rest.append(line);
      if (auto visited = visit(number, line); !visited) return visited.error();
      rest.clear();
    }
    rest.append(piece, begin);
    if (rest.size() > kLongestLine) return too_long(path, number);
  }
  return {};
}

base::Result<LineFile> LineFile::open(const std::string& path, AppendFile::Start start) {
  const size_t slash = path.find_last_of('/');
  if (slash != std::string::npos) {
    if (auto made = make_private_folder(path.substr(0, slash)); !made) return made.error();
  }
  auto file = AppendFile::open(path, start);
  if (!file) return file.error();
  LineFile lines(std::move(file).value());
  if (auto cut = lines.cut_last_line(); !cut) return cut.error();
  return lines;
}

base::Result<void> LineFile::cut_last_line() {
  if (is_empty()) return {};
  auto file = files::RandomAccessFile::open(path());
  if (!file) return file.error();
  std::string piece;
  for (uint64_t end = file->size(); end > 0; end -= piece.size()) {
    if (file->size() - end > kLongestLine) {
      return base::Error(
          fmt::format("\"{}\" is not a file of lines: its last {} bytes have no line break", path(), kLongestLine));
    }
    piece.resize(std::min(kPieceOfLines, end));
    if (auto read = file->read(end - piece.size(), std::span<char>(piece), "lines"); !read) return read.error();
    const size_t newline = piece.rfind('\n');
    if (newline == std::string::npos) continue;
    const uint64_t size = end - piece.size() + newline + 1;
    return size == file->size() ? base::Result<void>() : file_.cut_to(size);
  }
  return file_.cut_to(0);
}

base::Result<void> LineFile::change_lines(const Change& change) {
  auto target = base::AtomicFile::create(path());
  if (!target) return target.error();
  bool is_changed = false;
  std::string pending;
  const auto keep = [&](int64_t number, std::string_view line) -> base::Result<void> {
    auto changed = change(number, line);
    if (!changed) return changed.error();
    is_changed = is_changed || *changed != line;
    if (!changed->empty()) pending.append(*changed) += '\n';
    if (pending.size() < kPieceOfLines) return {};
    return target->write(std::exchange(pending, {}));
  };
  if (auto visited = visit_lines(path(), keep); !visited) return visited.error();
  if (!is_changed) return {};
  if (auto written = target->write(pending); !written) return written.error();
  if (auto committed = target->commit(); !committed) return committed.error();
  auto file = AppendFile::open(path(), AppendFile::Start::kGoOn);
  if (!file) return file.error();
  file_ = std::move(file).value();
  return {};
}

}  // namespace cohort::report
