/// The output of one round's workers that is shown or filtered: reads pipes, writes log files, the console and filtered logs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"
#include "cohort/elastic/events/watch.h"
#include "cohort/elastic/output/console.h"
#include "cohort/elastic/output/log_routing.h"

namespace cohort::elastic {

class WorkerOutput {
 public:
  /// Writes filtered_stdout.log and filtered_stderr.log to `attempt_folder`. `consoles` must outlive this object.
  WorkerOutput(const FilteredLogs& filters, const std::string& attempt_folder, Consoles& consoles);
  ~WorkerOutput();

  /// Takes over the pipe of a stream with tee; does nothing for others.
  base::Result<void> add_output(const StreamRoute& route, const std::string& line_prefix, base::Fd& pipe);
  base::Result<void> add_errors(const StreamRoute& route, const std::string& line_prefix, base::Fd& pipe);

  /// Adds the watches that move text on. The watches must not outlive this object.
  void add_watches(std::vector<Watch>& watches);
  /// Reads the text that is in the pipes now (a process that left its session may keep one open for ever) and shows what the
  /// consoles take; they keep the rest.
  void finish();

 private:
  struct Sink;
  struct Stream;

  base::Result<void> add(const StreamRoute& route, const std::string& line_prefix, base::Fd& pipe, Sink& sink);
  /// Returns the number of bytes.
  size_t read(Stream& stream);

  Consoles& consoles_;
  std::unique_ptr<Sink> output_;
  std::unique_ptr<Sink> errors_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<char> buffer_ =
      std::vector<char>(64 * 1024);  ///< not on the stack, which may be limited to less (ulimit -s)
};

}  // namespace cohort::elastic
