/// Formats traces as texts and files. Pure functions; none throws for unusual values, such as texts that are not UTF-8.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/shm/report/group_trace.h"

namespace cohort::shm {

/// Formats a text for people: for each group what each rank does now, since when and where, the first operation in which ranks
/// differ, and the last 10 operations of each rank.
std::string to_text(const ProcessTrace& trace);

/// Formats PyTorch's flight recorder as JSON, version 2.10 (FlightRecorder.hpp, dump_json), one entry per line. PyTorch writes a
/// file per rank; this one has all ranks of the host, so entries also have a "rank" (the global rank), and "ranks" describes
/// them. Sizes are numbers of elements. A failed operation has PyTorch's state before the failure, "retired" and "failed".
std::string to_json(const ProcessTrace& trace);

/// Formats the file `<prefix><rank>` that PyTorch's analyzer, torchfrtrace, reads: the same data for one global rank, pickled.
/// The analyzer only knows its own backend, so operations are named "gloo:all_reduce".
std::string to_pickle(const ProcessTrace& trace, int global_rank);

/// Formats a trace for chrome://tracing and Perfetto: a process per rank, with a row per group for its collectives and one for
/// sends and receives. Running operations end at the time of the dump.
std::string to_chrome_trace(const ProcessTrace& trace);

/// Returns "all_reduce(SUM) of 1024 float32", "broadcast from rank 1 of 8 float32", "send to rank 2 of 3 int64, tag 7".
std::string describe_call(const CallRecord& record);

/// The first collective that ranks called differently, or that some have not called.
struct Difference {
  struct Party {
    std::string call;  ///< the text of describe_call
    std::vector<int> ranks;
    bool operator==(const Party&) const = default;
  };
  uint64_t collective_seq_id = 0;
  /// In the order of their first rank. One party if the ranks that made the call agree; none if they no longer have it in their
  /// records.
  std::vector<Party> parties;
  std::vector<int> missing;
  bool operator==(const Difference&) const = default;
};
/// Compares the records that all ranks still have. Ignores ranks that have left the group.
std::optional<Difference> find_difference(const GroupTrace& group);

}  // namespace cohort::shm
