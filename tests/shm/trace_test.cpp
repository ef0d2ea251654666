#include "cohort/shm/trace/trace.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gnu/libc-version.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <set>
#include <stdexcept>
#include <thread>

#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"
#include "cohort/shm/report/read_trace.h"
#include "cohort/shm/trace/call_sites.h"
#include "cohort/shm/trace/trace_area.h"
#include "tests/shm/trace_area_memory.h"
#include "tests/support/rank_processes.h"

namespace cohort::shm {
namespace {

using State = CallRecord::State;
using test::TraceMemory;

TraceRecord all_reduce(uint64_t count = 8) {
  return {.kind = OpKind::kAllReduce, .dtype = DType::kFloat32, .num_inputs = count, .num_outputs = count};
}

TraceRecord send_to(int peer) {
  return {.kind = OpKind::kSend, .dtype = DType::kInt64, .is_point_to_point = true, .root = peer};
}

std::vector<CallRecord> records_of(const TraceMemory& memory) { return read_records(memory.get(), 0); }

/// A record whose parts can be checked against each other.
TraceRecord consistent_record(uint64_t value, bool is_point_to_point) {
  return {.kind = static_cast<OpKind>(1 + value % 12),
          .dtype = static_cast<DType>(value % kNumDTypes),
          .reduce_op = static_cast<ReduceOp>(value % kNumReduceOps),
          .is_point_to_point = is_point_to_point,
          .root = static_cast<int32_t>(value),
          .tag = static_cast<int32_t>(value * 3),
          .num_inputs = value * 5,
          .num_outputs = value * 7,
          .timeout_ms = static_cast<int64_t>(value * 11)};
}

bool is_consistent(const CallRecord& record) {
  const auto value = static_cast<uint64_t>(record.root);
  const TraceRecord expected = consistent_record(value, record.is_p2p);
  return record.kind == expected.kind && record.dtype == expected.dtype && record.reduce_op == expected.reduce_op &&
         record.tag == expected.tag && record.num_inputs == expected.num_inputs &&
         record.num_outputs == expected.num_outputs && record.timeout_ms == expected.timeout_ms;
}

TEST(Trace, RecordsWhatWasCalled) {
  const TraceMemory memory;
  Trace trace(memory.get());
  trace.schedule({.kind = OpKind::kReduce,
                  .dtype = DType::kBFloat16,
                  .reduce_op = ReduceOp::kMax,
                  .root = 3,
                  .tag = -7,
                  .num_inputs = uint64_t{1} << 40,
                  .num_outputs = 5,
                  .timeout_ms = 1'800'000});
  const std::vector<CallRecord> records = records_of(memory);
  ASSERT_EQ(records.size(), 1);
  CallRecord expected;
  expected.record_id = 1;
  expected.collective_seq_id = 1;
  expected.kind = OpKind::kReduce;
  expected.dtype = DType::kBFloat16;
  expected.reduce_op = ReduceOp::kMax;
  expected.root = 3;
  expected.tag = -7;
  expected.num_inputs = uint64_t{1} << 40;
  expected.num_outputs = 5;
  expected.timeout_ms = 1'800'000;
  expected.created_ns = records[0].created_ns;
  expected.thread_id = ::gettid();
  EXPECT_EQ(records[0], expected);
}

TEST(Trace, StatesAndTimesFollowTheOperation) {
  const TraceMemory memory;
  Trace trace(memory.get());
  const uint64_t id = trace.schedule(all_reduce());
  EXPECT_EQ(records_of(memory)[0].state, State::kScheduled);
  EXPECT_EQ(records_of(memory)[0].started_ns, std::nullopt);
  trace.start(id);
  EXPECT_EQ(records_of(memory)[0].state, State::kStarted);
  trace.complete(id);
  const CallRecord record = records_of(memory)[0];
  EXPECT_EQ(record.state, State::kCompleted);
  EXPECT_LE(record.created_ns, record.started_ns);
  EXPECT_LE(record.started_ns, record.finished_ns);
}

TEST(Trace, BeginIsScheduleAndStart) {
  const TraceMemory memory;
  Trace trace(memory.get());
  const uint64_t id = trace.begin(all_reduce());
  EXPECT_EQ(records_of(memory)[0].state, State::kStarted);
  EXPECT_EQ(records_of(memory)[0].started_ns, records_of(memory)[0].created_ns);
  trace.complete(id);
  EXPECT_EQ(records_of(memory)[0].state, State::kCompleted);
}

TEST(Trace, TheFirstEndCounts) {
  const TraceMemory memory;
  Trace trace(memory.get());
  const uint64_t failed = trace.begin(all_reduce());
  trace.fail(failed);
  trace.complete(failed);
  const uint64_t completed = trace.begin(all_reduce());
  trace.complete(completed);
  trace.fail(completed);
  EXPECT_EQ(records_of(memory)[0].state, State::kFailed);
  EXPECT_EQ(records_of(memory)[1].state, State::kCompleted);
}

TEST(Trace, AFailureBeforeTheStartIsKnown) {
  const TraceMemory memory;
  Trace trace(memory.get());
  trace.fail(trace.schedule(all_reduce()));
  EXPECT_EQ(records_of(memory)[0].state, State::kFailed);
  EXPECT_EQ(records_of(memory)[0].started_ns, std::nullopt);
}

TEST(Trace, TimesAreSinceTheEpoch) {
  const TraceMemory memory;
  Trace trace(memory.get());
  using std::chrono::system_clock;
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(system_clock::now().time_since_epoch()).count();
  };
  // The two clocks tick at rates that may differ by some microseconds per second.
  constexpr int64_t kTolerance = 10'000'000;
  const int64_t before = now();
  trace.schedule(all_reduce());
  const int64_t after = now();
  const int64_t created = read_records(memory.get(), wall_clock_offset_ns())[0].created_ns;
  EXPECT_GE(created, before - kTolerance);
  EXPECT_LE(created, after + kTolerance);
}

TEST(Trace, CountsCollectivesAndSendsApart) {
  const TraceMemory memory;
  Trace trace(memory.get());
  trace.schedule(all_reduce());
  trace.schedule(send_to(1));
  trace.schedule(send_to(2));
  trace.schedule(all_reduce());
  std::vector<std::vector<uint64_t>> numbers;
  for (const CallRecord& record : records_of(memory)) {
    numbers.push_back({record.record_id, record.collective_seq_id, record.p2p_seq_id});
  }
  EXPECT_EQ(numbers, (std::vector<std::vector<uint64_t>>{{1, 1, 0}, {2, 1, 1}, {3, 1, 2}, {4, 2, 2}}));
}

TEST(Trace, KeepsTheLast512OfEachKind) {
  const TraceMemory memory;
  Trace trace(memory.get());
  trace.complete(trace.begin(all_reduce()));
  const uint64_t first_send = trace.begin(send_to(1));
  for (int count = 0; count < 700; ++count) trace.begin(send_to(1));
  trace.fail(first_send);  // replaced long ago
  const std::vector<CallRecord> records = records_of(memory);
  ASSERT_EQ(records.size(), 513);
  EXPECT_EQ(records[0].collective_seq_id, 1);
  EXPECT_EQ(records[0].state, State::kCompleted);
  EXPECT_EQ(records[1].p2p_seq_id, 190);
  EXPECT_EQ(records[512].p2p_seq_id, 701);
  EXPECT_EQ(records[512].record_id, 702);
  for (size_t place = 1; place < records.size(); ++place) EXPECT_EQ(records[place].state, State::kStarted);
}

TEST(Trace, AReplacedRecordDoesNotShowItsOldEnd) {
  const TraceMemory memory;
  Trace trace(memory.get());
  for (int count = 0; count < 512; ++count) trace.complete(trace.begin(all_reduce()));
  trace.schedule(all_reduce());
  EXPECT_EQ(records_of(memory).back().state, State::kScheduled);
}

TEST(Trace, IdsOfNothingAreIgnored) {
  const TraceMemory memory;
  Trace trace(memory.get());
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, uint64_t{77}, ~uint64_t{0}}) {
    trace.start(id);
    trace.complete(id);
    trace.fail(id);
  }
  EXPECT_TRUE(records_of(memory).empty());
}

TEST(Trace, PassesOverARecordLeftHalfWritten) {
  const TraceMemory memory;
  Trace trace(memory.get());
  for (int count = 0; count < 3; ++count) trace.begin(all_reduce());
  auto& area = *reinterpret_cast<TraceArea*>(memory.get());
  area.collectives.at(2).version.store(2 * 2 + 1);
  ASSERT_EQ(records_of(memory).size(), 2);
  EXPECT_EQ(records_of(memory)[1].collective_seq_id, 3);
  // Nor does anybody write there again, as its writer may go on some time.
  for (int count = 0; count < 600; ++count) trace.begin(all_reduce());
  EXPECT_EQ(area.collectives.at(2).version.load(), 2 * 2 + 1);
  EXPECT_EQ(records_of(memory).size(), 511);
}

TEST(Trace, RubbishInTheMemoryIsReadWithoutHarm) {
  const TraceMemory memory;
  std::memset(memory.get(), 0xfe, Trace::area_bytes());
  ASSERT_EQ(records_of(memory).size(), 1024);
  EXPECT_EQ(records_of(memory)[0].kind, OpKind::kNone);
  EXPECT_EQ(records_of(memory)[0].call_site, "(one of many call sites)");
  std::memset(memory.get(), 2, Trace::area_bytes());
  ASSERT_EQ(records_of(memory).size(), 1024);
  EXPECT_EQ(records_of(memory)[0].call_site, std::string(kCallSiteBytes, '\2'));
}

TEST(Trace, CanBeSwitchedOff) {
  base::set_env("TORCH_FR_BUFFER_SIZE", "0");
  const TraceMemory memory;
  Trace trace(memory.get());
  base::unset_env("TORCH_FR_BUFFER_SIZE");
  const uint64_t id = trace.begin(all_reduce());
  EXPECT_NE(id, 0);
  trace.complete(id);
  EXPECT_TRUE(records_of(memory).empty());
}

TEST(Trace, ThreadsWriteWhileOthersRead) {
  const TraceMemory memory;
  Trace trace(memory.get());
  constexpr int kThreads = 4;
  constexpr int kCalls = 3000;
  std::atomic<int> num_running{kThreads};
  std::vector<std::thread> writers;
  for (int thread = 0; thread < kThreads; ++thread) {
    writers.emplace_back([&, thread] {
      for (int call = 0; call < kCalls; ++call) {
        const uint64_t id = trace.schedule(
            consistent_record(static_cast<uint64_t>(thread) * kCalls + static_cast<uint64_t>(call), thread == 3));
        trace.start(id);
        call % 2 == 0 ? trace.complete(id) : trace.fail(id);
      }
      --num_running;
    });
  }
  int num_inconsistent = 0;
  while (num_running > 0) {
    for (const CallRecord& record : records_of(memory)) num_inconsistent += is_consistent(record) ? 0 : 1;
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(num_inconsistent, 0);

  const std::vector<CallRecord> records = records_of(memory);
  std::set<std::pair<bool, uint64_t>> numbers;
  int num_open = 0;
  for (const CallRecord& record : records) {
    EXPECT_TRUE(is_consistent(record));
    num_open += record.is_over() ? 0 : 1;
    numbers.emplace(record.is_p2p, record.seq_id());
  }
  // A thread that slept between its last look and its mark, while 512 others were made, has put the mark on a younger record.
  EXPECT_LE(num_open, kThreads);
  EXPECT_EQ(numbers.size(), records.size());
  EXPECT_EQ(records.size(), 1024);
  // Numbers have no gaps: as many as calls.
  EXPECT_TRUE(numbers.contains({false, 3 * kCalls}));
  EXPECT_TRUE(numbers.contains({true, kCalls}));
}

/// Maps a file that another process maps too.
std::byte* map_shared(const std::string& path) {
  const base::Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(Trace::area_bytes())) != 0) throw std::runtime_error("no file");
  void* const memory = ::mmap(nullptr, Trace::area_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory");
  return static_cast<std::byte*>(memory);
}

// On a busy machine the writer may not get a core again between its message and the kill.
constexpr size_t kRecordsBeforeTheKill = 100;

COHORT_WORKER(writes_trace_for_ever) {
  Trace trace(map_shared(test::worker_arguments().at(0)));
  for (uint64_t value = 1;; ++value) {
    trace.complete(trace.begin(consistent_record(value, value % 5 == 0)));
    if (value == kRecordsBeforeTheKill) std::cout << "writing\n";
  }
}

TEST(Trace, IsReadableAfterTheWriterWasKilled) {
  std::string path = "/tmp/cohort_trace_test_XXXXXX";
  const base::Fd fd(::mkstemp(path.data()));
  ASSERT_TRUE(fd);
  for (int attempt = 0; attempt < 10; ++attempt) {
    ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
    std::byte* const memory = map_shared(path);
    test::Workers workers("writes_trace_for_ever", {.world_size = 1, .arguments = {path}});
    workers.wait_for_output(0, "writing");
    for (int look = 0; look < 20; ++look) {
      for (const CallRecord& record : read_records(memory, 0)) EXPECT_TRUE(is_consistent(record));
    }
    workers.signal(0, SIGKILL);
    workers.wait();
    const std::vector<CallRecord> records = read_records(memory, 0);
    // At most one was cut off.
    EXPECT_GE(records.size(), kRecordsBeforeTheKill - 1);
    for (const CallRecord& record : records) EXPECT_TRUE(is_consistent(record));
    ::munmap(memory, Trace::area_bytes());
  }
  ::unlink(path.c_str());
}

TEST(CallSites, NameModulePlaceAndFunction) {
  const auto* const inside = reinterpret_cast<const char*>(&::gnu_get_libc_version) + 1;
  EXPECT_THAT(describe_call_site(inside),
              testing::MatchesRegex("libc\\.so\\.6\\+0x[0-9a-f]+ \\(gnu_get_libc_version\\)"));
  const void* const here = reinterpret_cast<const void*>(&is_consistent);
  EXPECT_THAT(describe_call_site(here), testing::MatchesRegex("cohort_shm_test\\+0x[0-9a-f]+( \\(.*\\))?"));
  EXPECT_EQ(describe_call_site(reinterpret_cast<const void*>(0x1235)), "0x1234");
}

COHORT_WORKER(names_its_program) { std::cout << describe_call_site(reinterpret_cast<const void*>(&is_consistent)); }

TEST(CallSites, NameTheProgramHoweverItWasStarted) {
  // By /proc/self/exe.
  const auto results = test::run_workers("names_its_program", {.world_size = 1});
  EXPECT_THAT(results[0].output, testing::StartsWith("cohort_shm_test+0x"));
}

TEST(CallSites, AreWrittenToTheTraceOncePerAddress) {
  const TraceMemory memory;
  Trace trace(memory.get());
  TraceRecord record = all_reduce();
  for (int count = 0; count < 3; ++count) {
    record.call_site = reinterpret_cast<const char*>(&::gnu_get_libc_version) + 1;
    trace.begin(record);
    record.call_site = reinterpret_cast<const char*>(&::get_nprocs) + 1;
    trace.begin(record);
  }
  trace.begin(all_reduce());
  const std::vector<CallRecord> records = records_of(memory);
  EXPECT_THAT(records[4].call_site, testing::HasSubstr("(gnu_get_libc_version)"));
  EXPECT_THAT(records[5].call_site, testing::HasSubstr("(get_nprocs)"));
  EXPECT_EQ(records[6].call_site, "");
  EXPECT_EQ(reinterpret_cast<const TraceArea*>(memory.get())->num_call_sites.load(), 2);
}

TEST(CallSites, TooManyAreCounted) {
  const TraceMemory memory;
  Trace trace(memory.get());
  TraceRecord record = all_reduce();
  for (uintptr_t place = 0; place < 200; ++place) {
    record.call_site = reinterpret_cast<const void*>(0x1001 + 16 * place);
    trace.begin(record);
  }
  const std::vector<CallRecord> records = records_of(memory);
  EXPECT_EQ(records[126].call_site, "0x17e0");
  EXPECT_EQ(records[127].call_site, "(one of many call sites)");
}

TEST(CallSites, ThreadsAgreeOnThem) {
  const TraceMemory memory;
  CallSites sites(*reinterpret_cast<TraceArea*>(memory.get()));
  std::vector<std::vector<int>> indices(4);
  std::vector<std::thread> threads;
  for (std::vector<int>& found : indices) {
    threads.emplace_back([&] {
      for (uintptr_t place = 0; place < 100; ++place) {
        found.push_back(sites.index_of(reinterpret_cast<const void*>(0x1001 + 16 * place)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int>& found : indices) EXPECT_EQ(found, indices[0]);
  EXPECT_EQ(std::set<int>(indices[0].begin(), indices[0].end()).size(), 100);
}

}  // namespace
}  // namespace cohort::shm
