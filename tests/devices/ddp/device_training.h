/// Trains on ranks with devices of their own, and compares with ranks on the CPU.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/utils.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <array>
#include <functional>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/ddp/settings/options.h"
#include "tests/support/inline_engine.h"
#include "tests/support/require.h"
#include "tests/support/sim_device/device_test.h"

namespace cohort::sim {

using Weights = std::vector<at::Tensor>;
/// One rank's training; returns its parameters and buffers.
using Training = std::function<Weights(int rank, const Group& group, const RankDevices& devices)>;

inline const RankDevices kOnCpu{at::kCPU, at::kCPU};

/// LibTorch's generator is the process's.
template <class Net>
Net make_net(int rank) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(1 + rank);  // DDP makes them equal
  return Net();
}

inline at::Generator data_of(int rank) { return at::make_generator<at::CPUGeneratorImpl>(7 + rank); }

inline Weights weights_of(const torch::nn::Module& module) {
  Weights result;
  for (const auto& parameter : module.parameters()) result.push_back(parameter.detach().cpu());
  for (const auto& buffer : module.buffers()) result.push_back(buffer.cpu());
  return result;
}

inline bool are_close(const Weights& first, const Weights& second, double rtol, double atol) {
  bool result = first.size() == second.size();
  for (size_t i = 0; result && i < first.size(); ++i) {
    result = at::allclose(first[i], second[i], rtol, atol);
    if (!result) std::cerr << "tensor " << i << " differs by " << (first[i] - second[i]).abs().max().item() << '\n';
  }
  return result;
}

inline bool are_close(const Weights& first, const Weights& second) { return are_close(first, second, 1e-4, 1e-5); }

/// Bit by bit; real devices round in their own way, so theirs are close.
inline bool are_equal(const Weights& first, const Weights& second) {
  if (is_real()) return are_close(first, second);
  bool result = first.size() == second.size();
  for (size_t i = 0; result && i < first.size(); ++i) result = first[i].equal(second[i]);
  return result;
}

/// The same where numbers of 16 bits are on the way.
inline bool are_equal_in_16_bits(const Weights& first, const Weights& second) {
  return is_real() ? are_close(first, second, 2e-2, 2e-2) : are_equal(first, second);
}

/// Two ranks end with the bits that they have on the CPU (are_equal()), or nearly so.
inline void expect_bits_of_cpu(const Training& training, bool (*agree)(const Weights&, const Weights&) = are_equal) {
  std::array<Weights, 2> expected;
  run_ranks_with_devices(
      2, [&](int rank, const Group& group, const RankDevices&) { expected[rank] = training(rank, group, kOnCpu); });
  run_ranks_with_devices(2, [&](int rank, const Group& group, const RankDevices& devices) {
    REQUIRE(agree(training(rank, group, devices), expected[rank]));
  });
}

/// Each engine of DDP, by its name in messages.
inline void for_each_engine(const std::function<void(ddp::Engine)>& fn) {
  for (const auto& [engine, name] : {std::pair{ddp::Engine::kCohort, "kCohort"}, std::pair{ddp::Engine::kC10d, "kC10d"},
                                     std::pair{ddp::kInline, "kInline"}}) {
    SCOPED_TRACE(name);
    try {
      fn(engine);
    } catch (const std::exception& error) {
      throw std::runtime_error(std::string(name) + ": " + error.what());
    }
  }
}

}  // namespace cohort::sim
