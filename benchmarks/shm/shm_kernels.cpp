// Compares the reduction kernels of every instruction set with memcpy, on one core and without synchronization.
//
//   build/bin/shm-kernels-bench --benchmark_filter=SUM/bfloat16      (Google Benchmark's flags)
//
// Two ranks; the first one's tensor is the output: two reads and one write per element. memcpy: one read and one write. Bytes per
// second count all of them.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/shm/interleaved.h"
#include "cohort/shm/kernels/kernels.h"

namespace {

using namespace cohort::shm;

// Separate memory for each buffer, beginning at a cache line.
class Buffer {
 public:
  explicit Buffer(size_t num_bytes) : bytes_(num_bytes + 64) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<uint8_t>(i % 60);  // small ordinary numbers
  }
  uint8_t* data() { return bytes_.data() + -reinterpret_cast<uintptr_t>(bytes_.data()) % 64; }

 private:
  std::vector<uint8_t> bytes_;
};

void measure_kernel(benchmark::State& state, DType dtype, ReduceOp op, InstructionSet set, int num_inputs) {
  const auto num_bytes = static_cast<size_t>(state.range(0));
  std::vector<Buffer> buffers(static_cast<size_t>(num_inputs), Buffer(num_bytes));
  std::vector<const void*> inputs;
  for (Buffer& buffer : buffers) inputs.push_back(buffer.data());
  const std::vector<double> factors(static_cast<size_t>(num_inputs), 0.5);
  const ReduceKernel kernel = reduce_kernel(dtype, op, set);
  for (auto _ : state) {
    kernel(buffers[0].data(), inputs.data(), factors.data(), num_inputs, num_bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * (num_inputs + 1));
}

void measure_memcpy(benchmark::State& state) {
  const auto num_bytes = static_cast<size_t>(state.range(0));
  Buffer from(num_bytes), to(num_bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), num_bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}

void add_kernel(DType dtype, ReduceOp op, InstructionSet set, int num_inputs, const std::vector<int64_t>& sizes) {
  const std::string name =
      std::string(name_of(op)) + "/" + name_of(dtype) + "/" + name_of(set) + "/inputs:" + std::to_string(num_inputs);
  auto* added = benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { measure_kernel(state, dtype, op, set, num_inputs); });
  for (const int64_t size : sizes) added->Arg(size);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<int64_t> sizes = {32 << 10, 64 << 20};
  for (const int64_t size : sizes) benchmark::RegisterBenchmark("memcpy", measure_memcpy)->Arg(size);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const InstructionSet set : available_instruction_sets()) {
      add_kernel(dtype, ReduceOp::kSum, set, 2, sizes);
      add_kernel(dtype, ReduceOp::kSum, set, 8, sizes);
      add_kernel(dtype, ReduceOp::kSum, set, 2, {4, 28, 60});
    }
  }
  for (const InstructionSet set : available_instruction_sets()) {
    add_kernel(DType::kFloat32, ReduceOp::kAvg, set, 2, sizes);
    add_kernel(DType::kBFloat16, ReduceOp::kMax, set, 2, sizes);
    add_kernel(DType::kInt64, ReduceOp::kSum, set, 2, sizes);
    add_kernel(DType::kInt32, ReduceOp::kAvg, set, 2, sizes);
    add_kernel(DType::kInt8, ReduceOp::kAvg, set, 3, sizes);
  }
  return cohort::bench::run_interleaved(argc, argv);
}
