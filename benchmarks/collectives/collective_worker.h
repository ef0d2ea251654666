/// A rank of `collectives`: makes buffers, checks the first call, and times calls. Independent of LibTorch and MPI; those are
/// engines.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/collectives/collective_case.h"

namespace cohort::bench {

struct Buffers {
  std::byte* input = nullptr;
  /// The input for in-place operations.
  std::byte* output = nullptr;
};

/// One complete call of the operation; for send_recv there and back.
using Call = std::function<void()>;

class Engine {
 public:
  virtual ~Engine() = default;
  /// Returns a call on these buffers. Throws std::exception if the engine lacks the operation. The root of broadcasts and
  /// reductions is rank 0.
  virtual Call prepare(const CollectiveCase& what, const Buffers& buffers) = 0;
  /// False if ranks work without waiting for each other. If they share cores, each would then be timed as if it were alone; so
  /// its time is the processor's, times the number of ranks per core.
  virtual bool meets() const { return true; }
  /// A description for users; may be empty.
  virtual std::string describe() const { return {}; }
};

struct WorkerOptions {
  int rank = 0;
  /// Engines by their names in commands.
  std::map<std::string, Engine*> engines;
  /// Allocates memory for tensors, of at least this many bytes. Collective for Memory::kShared.
  std::function<std::shared_ptr<std::byte>(Memory, size_t)> allocate;
  /// Lets ranks begin a block together.
  std::function<void()> barrier;
};

/// Commands:
///   "verify ENGINE CASE"          makes one call and checks its result: "ok"
///   "run ENGINE CASE WARM CALLS"  makes calls one after the other; answers with the nanoseconds of each, without the warm ones
///   "describe ENGINE"             describes the engine
/// A command that throws is answered with "error: why".
class CollectiveWorker {
 public:
  explicit CollectiveWorker(WorkerOptions options) : options_(std::move(options)) {}
  std::string answer(const std::string& command);

 private:
  struct Arena {
    std::shared_ptr<std::byte> memory;
    size_t num_bytes = 0;
  };
  std::string answer_or_throw(const std::string& command);
  Engine& engine(const std::string& name);
  std::byte* arena(Memory memory, bool is_output, size_t num_bytes);
  std::vector<Buffers> make_buffers(const CollectiveCase& what);
  std::vector<Call>& calls(const std::string& name, const CollectiveCase& what);
  std::string verify(const std::string& name, const CollectiveCase& what);
  std::string run(const std::string& name, const CollectiveCase& what, int num_warm, int num_calls);

  WorkerOptions options_;
  std::map<std::pair<Memory, bool>, Arena> arenas_;
  // Prepared calls of the last case, by engine and memory.
  CollectiveCase last_;
  std::map<std::string, std::vector<Call>> calls_;
  size_t next_buffer_ = 0;
};

/// Allocates memory of this process alone. Throws std::bad_alloc.
std::shared_ptr<std::byte> allocate_private(size_t num_bytes);

}  // namespace cohort::bench
