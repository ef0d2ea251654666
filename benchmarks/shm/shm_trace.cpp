// Measures the cost of what is always on: the flight recorder, beside the clock that it reads, and the comparison of calls.
//
//   build/bin/shm-trace-bench      (Google Benchmark's flags)
#include <benchmark/benchmark.h>
#include <time.h>

#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "benchmarks/shm/interleaved.h"
#include "cohort/shm/report/formats.h"
#include "cohort/shm/report/read_trace.h"
#include "cohort/shm/trace/call.h"
#include "cohort/shm/trace/trace.h"

namespace {

using namespace cohort::shm;

struct Area {
  Area() { std::memset(bytes.get(), 0, Trace::area_bytes()); }
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte, Delete> bytes{
      static_cast<std::byte*>(::operator new (Trace::area_bytes(), std::align_val_t{4096}))};
};

TraceRecord all_reduce() {
  return {.kind = OpKind::kAllReduce,
          .dtype = DType::kFloat32,
          .reduce_op = ReduceOp::kSum,
          .num_inputs = 1024,
          .num_outputs = 1024,
          .timeout_ms = 1'800'000,
          .call_site = reinterpret_cast<const void*>(&all_reduce)};
}

void look_at_the_clock_twice(benchmark::State& state) {
  timespec time{};
  for (auto _ : state) {
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    benchmark::DoNotOptimize(time);
  }
}
BENCHMARK(look_at_the_clock_twice);

void begin_complete(benchmark::State& state) {
  const Area area;
  Trace trace(area.bytes.get());
  const TraceRecord record = all_reduce();
  for (auto _ : state) trace.complete(trace.begin(record));
}
BENCHMARK(begin_complete);

void schedule_start_complete(benchmark::State& state) {
  const Area area;
  Trace trace(area.bytes.get());
  const TraceRecord record = all_reduce();
  for (auto _ : state) {
    const uint64_t id = trace.schedule(record);
    trace.start(id);
    trace.complete(id);
  }
}
BENCHMARK(schedule_start_complete);

/// Dumps a full ring of one rank, as text and JSON.
void dump_one_rank(benchmark::State& state) {
  const Area area;
  Trace trace(area.bytes.get());
  for (int call = 0; call < 1000; ++call) trace.complete(trace.begin(all_reduce()));
  for (auto _ : state) {
    ProcessTrace process;
    process.groups.push_back({.name = "0", .description = "default_pg", .global_ranks = {0}, .ranks = {RankTrace()}});
    process.groups[0].ranks[0].records = read_records(area.bytes.get(), wall_clock_offset_ns());
    benchmark::DoNotOptimize(to_text(process));
    benchmark::DoNotOptimize(to_json(process));
  }
}
BENCHMARK(dump_one_rank)->Unit(benchmark::kMillisecond);

// Makes this rank's signature and compares it with those of as many ranks as the argument says. Getting them is not included:
// they are in the cache line that every round waits for.
void compare_calls(benchmark::State& state) {
  const Call call{.kind = OpKind::kAllReduce, .dtype = DType::kFloat32, .reduce_op = ReduceOp::kSum, .count = 1024};
  std::vector<Signature> signatures(static_cast<size_t>(state.range(0)), encode(call));
  for (auto _ : state) {
    benchmark::DoNotOptimize(signatures.data());
    const Signature mine = encode(call);
    bool all_agree = true;
    for (const auto& theirs : signatures) all_agree = all_agree && agree(mine, theirs);
    benchmark::DoNotOptimize(all_agree);
  }
}
BENCHMARK(compare_calls)->Arg(2)->Arg(8)->Arg(64);

}  // namespace

int main(int argc, char** argv) { return cohort::bench::run_interleaved(argc, argv); }
