#include "cohort/elastic/output/worker_output.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

/// Appends to the file. If it takes no more, closes it and logs this once.
void write_or_close(base::Fd& file, std::string_view text, const std::string& path) {
  if (!file || text.empty()) return;
  if (const Result<void> written = base::write_all(file.get(), text, path); !written) {
    base::log_warning(Error(fmt::format("the log file \"{}\" ends here; the job goes on", path))
                          .caused_by(written.error())
                          .with_hint("see whether its disk is full, or give another --log-dir")
                          .describe());
    file.reset();
  }
}

}  // namespace

/// One of the launcher's own streams, with its filtered log.
struct WorkerOutput::Sink {
  Console& console;
  std::vector<std::string> filters;
  std::string filtered_path;
  base::Fd filtered;

  void append(const std::string& lines) {
    console.append(lines);
    if (filtered) write_or_close(filtered, matching(lines), filtered_path);
  }

  std::string matching(const std::string& lines) const {
    std::string found;
    for (size_t begin = 0; begin < lines.size();) {
      const size_t end = lines.find('\n', begin) + 1;
      const std::string line = lines.substr(begin, end - begin);
      const auto is_in_line = [&](const std::string& text) { return line.find(text) != std::string::npos; };
      if (std::any_of(filters.begin(), filters.end(), is_in_line)) found += line;
      begin = end;
    }
    return found;
  }
};

/// One stream of one worker that goes to a file and to the launcher's own stream.
struct WorkerOutput::Stream {
  base::Fd pipe;
  base::Fd file;
  std::string path;
  PrefixedLines lines;
  Sink* sink;
};

WorkerOutput::WorkerOutput(const FilteredLogs& filters, const std::string& attempt_folder, Consoles& consoles)
    : consoles_(consoles),
      output_(new Sink{consoles.output, filters.output_texts, attempt_folder + "/filtered_stdout.log", {}}),
      errors_(new Sink{consoles.errors, filters.error_texts, attempt_folder + "/filtered_stderr.log", {}}) {}

WorkerOutput::~WorkerOutput() = default;

Result<void> WorkerOutput::add_output(const StreamRoute& route, const std::string& line_prefix, base::Fd& pipe) {
  return add(route, line_prefix, pipe, *output_);
}

Result<void> WorkerOutput::add_errors(const StreamRoute& route, const std::string& line_prefix, base::Fd& pipe) {
  return add(route, line_prefix, pipe, *errors_);
}

Result<void> WorkerOutput::add(const StreamRoute& route, const std::string& line_prefix, base::Fd& pipe, Sink& sink) {
  if (!route.tee) return {};
  if (!sink.filters.empty() && !sink.filtered) {
    Result<base::Fd> filtered = base::open_for_writing(sink.filtered_path);
    if (!filtered) return filtered.error();
    sink.filtered = std::move(*filtered);
  }
  Result<base::Fd> file = base::open_for_writing(route.file);
  if (!file) return file.error();
  streams_.push_back(std::make_unique<Stream>(
      Stream{std::move(pipe), std::move(*file), route.file, PrefixedLines(line_prefix), &sink}));
  return {};
}

void WorkerOutput::add_watches(std::vector<Watch>& watches) {
  for (const auto& stream : streams_) {
    if (stream->pipe && !stream->sink->console.is_full()) {
      watches.push_back({stream->pipe.get(), POLLIN, [this, &stream] { read(*stream); }});
    }
  }
}

size_t WorkerOutput::read(Stream& stream) {
  const ssize_t count = ::read(stream.pipe.get(), buffer_.data(), buffer_.size());
  if (count < 0 && errno == EINTR) return 0;
  if (count <= 0) {
    stream.sink->append(stream.lines.finish());
    stream.pipe.reset();
    return 0;
  }
  const std::string_view chunk(buffer_.data(), static_cast<size_t>(count));
  write_or_close(stream.file, chunk, stream.path);
  stream.sink->append(stream.lines.append(chunk));
  return chunk.size();
}

void WorkerOutput::finish() {
  for (const auto& stream : streams_) {
    // Reads only what is in the pipe now: a process that has left its session may write for ever.
    int num_waiting = 0;
    if (stream->pipe) (void)::ioctl(stream->pipe.get(), FIONREAD, &num_waiting);
    while (num_waiting > 0 && stream->pipe) num_waiting -= static_cast<int>(read(*stream));
    stream->sink->append(stream->lines.finish());
  }
  consoles_.write_all();
}

}  // namespace cohort::elastic
