/// Traces as texts and files. Pure functions; none throws for odd values, such as texts that are not UTF-8.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/shm/report/group_trace.h"

namespace cohort::shm {

/// For people: per group what each rank does now, since when and where, the first operation at which ranks differ, and the
/// last 10 operations of each rank.
std::string to_text(const ProcessTrace& trace);

/// PyTorch's flight recorder as JSON, version 2.10 (FlightRecorder.hpp, dump_json), one entry per line. PyTorch writes a file
/// per rank; this one holds all ranks of the host, so entries have a "rank" too (in the job), and "ranks" says who they are.
/// Sizes are numbers of elements. A failed operation has PyTorch's state before the failure, "retired" and "failed".
std::string to_json(const ProcessTrace& trace);

/// What PyTorch's analyser, torchfrtrace, reads from a file `<prefix><rank>`: the same for one rank of the job, pickled. The
/// analyser knows no backend but its own, so operations are named "gloo:all_reduce".
std::string to_pickle(const ProcessTrace& trace, int global_rank);

/// For chrome://tracing and Perfetto: a process per rank, a row per group for its collectives and one for sends and receives.
/// What still runs reaches to the time of the dump.
std::string to_chrome_trace(const ProcessTrace& trace);

/// "all_reduce(SUM) of 1024 float32", "broadcast from rank 1 of 8 float32", "send to rank 2 of 3 int64, tag 7".
std::string describe_call(const CallRecord& record);

/// The first collective that ranks called differently, or that some have not called.
struct Difference {
  struct Party {
    std::string call;  ///< as of describe_call
    std::vector<int> ranks;
    bool operator==(const Party&) const = default;
  };
  uint64_t collective_seq_id = 0;
  /// In the order of their first rank; one if those who came agree; none if those who came have forgotten it.
  std::vector<Party> parties;
  std::vector<int> missing;
  bool operator==(const Difference&) const = default;
};
/// Looks at what all ranks still have in their records. Ranks that have left the group are not missed.
std::optional<Difference> find_difference(const GroupTrace& group);

}  // namespace cohort::shm
