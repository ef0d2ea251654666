/// Runs Google Benchmark's cases in short pieces in random order, not one after the other, so that no case always finds the
/// caches of the same predecessor. Shows mean and median over five pieces.
#pragma once

#include <benchmark/benchmark.h>

#include <vector>

namespace cohort::bench {

/// The body of main. Google Benchmark's own flags take precedence over those set here.
inline int run_interleaved(int argc, char** argv) {
  char order[] = "--benchmark_enable_random_interleaving=true";
  char repetitions[] = "--benchmark_repetitions=5";
  char duration[] = "--benchmark_min_time=0.1";
  char shown[] = "--benchmark_report_aggregates_only=true";
  std::vector<char*> arguments = {argv[0], order, repetitions, duration, shown};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace cohort::bench
