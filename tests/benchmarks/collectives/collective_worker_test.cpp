#include "benchmarks/collectives/collective_worker.h"
#include "benchmarks/support/serve_commands.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "benchmarks/collectives/collective_pattern.h"
#include "tests/support/temporary_folder.h"

namespace cohort::bench {
namespace {

// One rank, alone in its group of two: it broadcasts to nobody, which is right for rank 0.
class Recorder : public Engine {
 public:
  Call prepare(const CollectiveCase& what, const Buffers& buffers) override {
    if (what.op == Op::kAllToAll) throw std::runtime_error("no all_to_all here\nand more");
    prepared.insert(buffers.input);
    return [this, buffers] {
      ++num_calls;
      used.insert(buffers.input);
      if (is_wrong) std::memset(buffers.input, 1, 4);
    };
  }
  std::string describe() const override { return "a recorder"; }
  int num_calls = 0;
  bool is_wrong = false;
  std::set<std::byte*> prepared, used;
};

struct Fixture {
  Recorder recorder;
  int num_barriers = 0;
  std::vector<std::pair<Memory, size_t>> allocations;
  CollectiveWorker worker{{.rank = 0,
                           .engines = {{"ours", &recorder}},
                           .allocate =
                               [this](Memory memory, size_t num_bytes) {
                                 allocations.emplace_back(memory, num_bytes);
                                 return allocate_private(num_bytes);
                               },
                           .barrier = [this] { ++num_barriers; }}};
};

size_t num_words(const std::string& text) {
  std::istringstream words(text);
  size_t count = 0;
  for (std::string word; words >> word;) ++count;
  return count;
}

TEST(CollectiveWorker, ChecksTheFirstCall) {
  Fixture fixture;
  EXPECT_EQ(fixture.worker.answer("verify ours broadcast/float32/64B/ranks=2"), "ok");
  EXPECT_EQ(fixture.recorder.num_calls, 1);
  EXPECT_EQ(fixture.worker.answer("verify ours all_gather_single/float32/64B/ranks=2"),
            "error: element 0 of rank 0 is wrong")
      << "the output began as garbage, so doing nothing is no result";
  fixture.recorder.is_wrong = true;
  EXPECT_EQ(fixture.worker.answer("verify ours broadcast/float32/64B/ranks=2"), "error: element 0 of rank 0 is wrong");
}

TEST(CollectiveWorker, AnswersWithATimePerCall) {
  Fixture fixture;
  const std::string times = fixture.worker.answer("run ours all_reduce/float32/64B/ranks=2 3 20");
  EXPECT_EQ(num_words(times), 20U) << times;
  EXPECT_EQ(fixture.recorder.num_calls, 23);
  EXPECT_EQ(fixture.num_barriers, 1);
}

TEST(CollectiveWorker, SaysWhatAnEngineIs) {
  Fixture fixture;
  EXPECT_EQ(fixture.worker.answer("describe ours"), "a recorder");
}

TEST(CollectiveWorker, TakesTurnsWithBuffersOfLargeTensors) {
  Fixture fixture;
  fixture.worker.answer("run ours all_reduce/float32/64MiB/ranks=2 0 5");
  const auto plan = plan_buffers({.num_bytes = size_t{64} << 20}, default_fresh_bytes());
  EXPECT_EQ(fixture.recorder.prepared.size(), plan.num_buffers);
  EXPECT_EQ(fixture.recorder.used.size(), std::min<size_t>(plan.num_buffers, 5));
}

TEST(CollectiveWorker, KeepsPrivateAndSharedMemoryApart) {
  Fixture fixture;
  fixture.worker.answer("run ours all_reduce/float32/64KiB/ranks=2 0 1");
  fixture.worker.answer("run ours all_reduce/float32/64KiB/ranks=2/memory=shm 0 1");
  fixture.worker.answer("run ours all_reduce/float32/64KiB/ranks=2 0 1");
  EXPECT_EQ(fixture.allocations,
            (std::vector<std::pair<Memory, size_t>>{{Memory::kPrivate, 64 << 10}, {Memory::kShared, 64 << 10}}));
  EXPECT_EQ(fixture.recorder.prepared.size(), 2U);
}

TEST(CollectiveWorker, AnswersErrorsInOneLine) {
  Fixture fixture;
  EXPECT_EQ(fixture.worker.answer("run ours all_to_all_single/float32/64B/ranks=2 0 1"), "error: no all_to_all here");
  EXPECT_EQ(fixture.worker.answer("run theirs broadcast/float32/64B/ranks=2 0 1"),
            "error: there is no engine \"theirs\"");
  EXPECT_EQ(fixture.worker.answer("describe theirs"), "error: there is no engine \"theirs\"");
  EXPECT_EQ(fixture.worker.answer("run ours broadcast/float32/64X/ranks=2 0 1"),
            "error: not a case: \"broadcast/float32/64X/ranks=2\"");
}

TEST(ServeCommands, AnswersLineByLineUntilQuit) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/commands";
  std::ofstream(path) << "a\nb\nquit\nc\n";
  std::string sent;
  serve_commands(
      path, [](const std::string& line) { return line + line; }, [&](const std::string& line) { sent += line; });
  EXPECT_EQ(sent, "= aa\n= bb\n");
}

}  // namespace
}  // namespace cohort::bench
