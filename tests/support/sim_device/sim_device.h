/// A simulated accelerator: several devices in host memory, so that code for GPUs can be tested where there is none.
///
///     sim::install(sim::Place::kCuda, 4);   // once, before the first tensor on a device and before the first backward
///     auto x = at::ones({3}, sim::device(1));
///
/// Like a GPU it has memory that host code must not touch (a stray access ends in SIGSEGV); kernels that run later, in streams
/// with a thread each; events; an allocator per stream that gives a freed block to the next one in the same stream, filled
/// with 0xFF (NaN); pinned host memory; a generator per device; errors that show at the next synchronization. Kernels are
/// LibTorch's CPU kernels, so results are those of the CPU, bit for bit.
///
/// What it cannot show: speed, the numerics of a GPU, NCCL's own behavior, graphs, memory shared between processes. It has
/// no sparse tensors and no fused LSTM.
#pragma once

#include <c10/core/Device.h>

#include <set>
#include <string>

namespace cohort::sim {

constexpr int kMaxDevices = 8;

/// What LibTorch takes the devices for.
enum class Place {
  kPrivateUse1,  ///< a device type of its own: "sim:1"
  kCuda,  ///< CUDA: "cuda:1", is_cuda() is true. Only where LibTorch was built without CUDA, which leaves its place empty
  kReal  ///< none is simulated: the machine's own accelerator, for tests that can do with it
};

/// Registers the devices with LibTorch. Throws c10::Error when called twice, for a number that is not 1 to kMaxDevices, for
/// kCuda in a LibTorch that has CUDA, or for kReal where LibTorch sees no accelerator.
void install(Place place, int num_devices);
bool is_installed();
/// The devices are not simulated: they keep no count of waits, run late when they like, and round in their own way.
bool is_real();

c10::DeviceType type();
/// Of real devices, which may be fewer than tests want, index modulo their number.
c10::Device device(int index);
/// kMaxDevices at most.
int num_devices();

/// Waits for all streams of all devices; throws what their work threw.
void synchronize();

/// Operators that had to wait for their stream, because their results' shapes are not known before: what a test of asynchrony
/// must not use.
std::set<std::string> synchronous_operators();

}  // namespace cohort::sim
