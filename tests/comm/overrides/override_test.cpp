#include "cohort/comm/overrides/override.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <functional>
#include <iostream>
#include <map>

#include "cohort/base/system/env.h"
#include "cohort/checkpoint/recovery/skip_init.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/context/context_parallel.h"
#include "cohort/parallel/norm/convert_sync_batch_norm.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort::comm {
namespace {

const std::map<std::string, std::function<void()>> kUses{
    {"ContextParallel", [] { const ContextParallel scope(default_group()); }},
    {"convert_sync_batchnorm", [] { convert_sync_batchnorm(torch::nn::BatchNorm1d(2)); }},
    {"DTensor",
     [] {
       const DTensor x = distribute_tensor(at::ones({2}), init_device_mesh("cpu", {1}), {Shard(0)}, std::nullopt);
     }},
    {"SkipInit", [] { const checkpoint::SkipInit skip; }},
};

void load_second_library() {
  const auto path = base::get_env("COHORT_BINARY_DIR").value_or("build") + "/lib/libcohort_second_library.so";
  if (!dlopen(path.c_str(), RTLD_NOW)) throw std::runtime_error(dlerror());
}

COHORT_WORKER(overrides_of_two_libraries) {
  init_process_group("gloo");
  const auto& use = kUses.at(test::worker_arguments().at(0));
  if (test::worker_arguments().at(1) == "since") {
    use();
    use();
  }
  load_second_library();
  test::print_error(use);
}

std::string error_of_both(const std::string& feature, const std::string& when) {
  const auto results = test::run_workers("overrides_of_two_libraries",
                                         {.world_size = 1, .arguments = {feature, when}, .loads_anew = true});
  results.expect_success();
  // Where the other kernel was registered: a path of this machine, and a line.
  auto text = results[0].output;
  const auto begin = text.find("(registered at "), end = text.find("second_library.cpp:");
  if (begin != std::string::npos && end != std::string::npos)
    text.replace(begin, text.find(')', end) - begin, "(there");
  return text;
}

std::string text_of(const std::string& feature, const std::string& operation, const std::string& key) {
  return "[cohort] " + feature + ": another library has a kernel of its own for LibTorch's operator " + operation +
         " at the dispatch key " + key + " (there), and LibTorch calls only one of the two\n  hint: " + feature +
         " is off here; everything else works. Leave that library out, or see docs/design/libtorch_overrides.md for "
         "what needs this operator\n";
}

TEST(Overrides, OfAnotherLibraryBeforeOursMessage) {
  EXPECT_EQ(error_of_both("ContextParallel", "before"),
            text_of("ContextParallel", "aten::scaled_dot_product_attention", "AutogradCPU"));
  EXPECT_EQ(error_of_both("convert_sync_batchnorm", "before"),
            text_of("convert_sync_batchnorm", "aten::batch_norm", "AutogradCPU"));
  EXPECT_EQ(error_of_both("DTensor", "before"), text_of("DTensor", "aten::one_hot", "AutogradCPU"));
  EXPECT_THAT(error_of_both("SkipInit", "before"),
              testing::MatchesRegex(
                  "\\[cohort\\] SkipInit: LibTorch's dispatch key TESTING_ONLY_GenericMode, which SkipInit needs for "
                  "itself, is in use in this process: operator aten::uniform_ has a kernel for it \\(LibTorch "
                  "[0-9.]+\\)\n  hint: SkipInit is off here; everything else works. Find the library that registers "
                  "kernels for the key, and leave it out\n"));
}

TEST(Overrides, OfAnotherLibrarySinceOursMessage) {
  EXPECT_EQ(error_of_both("ContextParallel", "since"),
            text_of("ContextParallel", "aten::scaled_dot_product_attention", "AutogradCPU"));
  EXPECT_EQ(error_of_both("convert_sync_batchnorm", "since"),
            text_of("convert_sync_batchnorm", "aten::batch_norm", "AutogradCPU"));
  EXPECT_EQ(error_of_both("SkipInit", "since"), text_of("SkipInit", "aten::uniform_", "TESTING_ONLY_GenericMode"));
}

}  // namespace
}  // namespace cohort::comm
