#include "cohort/comm/process/share_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cohort/comm/process/spawn.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_workers;

size_t num_entries(const std::string& folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// Lines of /proc/self/maps that are ours.
size_t num_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:cohort") != std::string::npos;
  return count;
}

torch::nn::Sequential small_model() {
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
}

// Every rank writes its own rows; the parent, which has written nothing, sees them all.
COHORT_WORKER(share_module) {
  auto model = small_model();
  const auto before = model->parameters()[0].detach().clone();
  share_memory(*model);
  REQUIRE(at::equal(model->parameters()[0], before));
  for (const auto& tensor : model->parameters()) REQUIRE(is_shared(tensor) && tensor.is_leaf());
  for (const auto& tensor : model->buffers()) REQUIRE(is_shared(tensor));
  spawn(
      [&](int rank) {
        at::NoGradGuard no_grad;
        for (auto& tensor : model->parameters()) {
          if (tensor.dim() == 2) tensor.select(0, rank).fill_(rank + 1);
        }
        model->buffers()[0].select(0, rank).fill_(rank + 10);
      },
      2);
  REQUIRE(at::equal(model->parameters()[0].slice(0, 0, 2), at::tensor({1.F, 1.F, 1.F, 2.F, 2.F, 2.F}).view({2, 3})));
  REQUIRE(at::equal(model->buffers()[0], at::tensor({10.F, 11.F, 0.F, 0.F})));
}

TEST(ShareMemory, RanksAndTheirParentUseOneModel) { run_workers("share_module", {.world_size = 1}).expect_success(); }

// LibTorch's own is enough for ranks of spawn.
COHORT_WORKER(share_by_libtorch) {
  auto tensor = at::zeros({4});
  tensor.share_memory_();
  REQUIRE(is_shared(tensor));
  const auto data = tensor.data_ptr();
  share_memory(tensor);
  REQUIRE(tensor.data_ptr() == data);
  spawn([&](int rank) { tensor.select(0, rank).fill_(rank + 1); }, 4);
  REQUIRE(at::equal(tensor, at::tensor({1.F, 2.F, 3.F, 4.F})));
}

TEST(ShareMemory, LibTorchsOwnServesRanksTooAndIsLeftAlone) {
  run_workers("share_by_libtorch", {.world_size = 1}).expect_success();
}

// spawn refuses a process with threads, so sharing must not start any.
COHORT_WORKER(share_large) {
  const auto tensor = at::empty({1 << 22});
  share_memory(tensor);
  REQUIRE(num_entries("/proc/self/task") == 1);
  auto* const counter = reinterpret_cast<int64_t*>(tensor.data_ptr());
  std::atomic_ref<int64_t>(*counter).store(0);
  spawn(
      [&](int) {
        for (int i = 0; i < 10000; ++i) std::atomic_ref<int64_t>(*counter).fetch_add(1);
      },
      3);
  REQUIRE(*counter == 30000);
}

TEST(ShareMemory, StartsNoThreadsAndServesAtomics) { run_workers("share_large", {.world_size = 1}).expect_success(); }

COHORT_WORKER(share_and_die) {
  auto tensor = at::zeros({1 << 20});
  share_memory(tensor);
  auto context = spawn([&](int) { pause(); }, 2, false);
  std::cout << getpid() << std::flush;
  raise(SIGKILL);
}

TEST(ShareMemory, NothingIsLeftInDevShmByKill9) {
  const auto results = run_workers("share_and_die", {.world_size = 1});
  EXPECT_EQ(results[0].exit_code, -SIGKILL);
  ASSERT_FALSE(results[0].output.empty());
  // Other tests run beside this one, some keep files of their own there. Names of shared memory hold the process's number.
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const auto name = entry.path().filename().string();
    EXPECT_EQ(("_" + name + "_").find("_" + results[0].output + "_"), std::string::npos) << name;
  }
}

TEST(ShareMemory, OneDescriptorForAModuleAndNothingLeftAfterIt) {
  const auto num_fds = num_entries("/proc/self/fd");
  const auto mapped = num_mappings();
  at::Tensor survivor;
  {
    torch::nn::Sequential model;
    for (int i = 0; i < 50; ++i) model->push_back(torch::nn::Linear(5, 5));
    share_memory(*model);
    EXPECT_EQ(num_entries("/proc/self/fd"), num_fds + 1);
    EXPECT_EQ(num_mappings(), mapped + 1);
    share_memory(*model);
    EXPECT_EQ(num_entries("/proc/self/fd"), num_fds + 1);
    survivor = model->parameters()[7].detach();
  }
  EXPECT_EQ(num_mappings(), mapped + 1);
  survivor.fill_(3);
  EXPECT_EQ(survivor.sum().item<float>(), 15);
  survivor.reset();
  EXPECT_EQ(num_entries("/proc/self/fd"), num_fds);
  EXPECT_EQ(num_mappings(), mapped);
}

TEST(ShareMemory, ViewsTiedTensorsAndGradientsStayWhatTheyAre) {
  auto base = at::arange(12, at::kFloat).view({3, 4});
  const auto column = base.select(1, 2);
  const auto transposed = base.t();
  torch::nn::Linear one(4, 4);
  torch::nn::Linear other(4, 4);
  other->weight.set_data(one->weight.detach());
  one->weight.mutable_grad() = at::ones({4, 4});
  torch::nn::Sequential model(one, other);
  share_memory({base, column, at::empty({0}), at::zeros({})});
  share_memory(*model);
  EXPECT_TRUE(at::equal(column, at::tensor({2.F, 6.F, 10.F})));
  EXPECT_TRUE(is_shared(column) && is_shared(transposed));
  base.fill_(7);
  EXPECT_TRUE(at::equal(transposed, at::full({4, 3}, 7.F)));
  EXPECT_EQ(one->weight.data_ptr(), other->weight.data_ptr());
  EXPECT_TRUE(is_shared(one->weight.grad()));
  EXPECT_FALSE(is_shared(at::ones({2})));
  EXPECT_FALSE(is_shared(at::Tensor()));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(other->bias.data_ptr()) % 64, 0u);
}

// A lazy clone has its memory from another tensor until one of the two is written.
TEST(ShareMemory, ACopyOnWriteTensorLeavesItsOriginal) {
  const auto original = at::ones({8});
  auto lazy = at::_lazy_clone(original);
  share_memory(lazy);
  lazy.fill_(2);
  EXPECT_TRUE(at::equal(original, at::ones({8})));
  EXPECT_TRUE(at::equal(lazy, at::full({8}, 2.F)));
  EXPECT_TRUE(is_shared(lazy));
}

TEST(ShareMemory, CannotBeResized) {
  auto tensor = at::zeros({4});
  share_memory(tensor);
  EXPECT_NE(error_of([&] { tensor.resize_({100}); }).find("not resizable"), std::string::npos);
}

TEST(ShareMemory, RefusesWhatIsNoDenseCpuTensorMessage) {
  const auto error = [](const at::Tensor& tensor) { return error_of([&] { share_memory(tensor); }); };
  EXPECT_EQ(error({}), "[cohort] share_memory: the tensor is undefined");
  EXPECT_EQ(error(at::empty({2}, at::kMeta)),
            "[cohort] share_memory: the tensor is on device meta, and only CPU tensors can be in shared memory\n"
            "  hint: share tensor.cpu()");
  EXPECT_EQ(error(at::eye(2).to_sparse()),
            "[cohort] share_memory: the tensor has layout Sparse, and only dense tensors can be in shared memory\n"
            "  hint: share its indices and values, or tensor.to_dense()");
  EXPECT_EQ(
      error(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)),
      "[cohort] share_memory: the tensor is quantized (c10::qint8), and only plain dtypes can be in shared memory\n"
      "  hint: share tensor.int_repr() and its scale");
  EXPECT_EQ(error(at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})})),
            "[cohort] share_memory: the tensor is nested, and only plain tensors can be in shared memory\n"
            "  hint: share its parts, from tensor.unbind()");
  EXPECT_EQ(error_of([] {
              share_memory({at::ones({1}), at::Tensor()});
            }),
            "[cohort] share_memory: tensor 1 is undefined");
}

TEST(ShareMemory, NamesTheModulesTensorMessage) {
  torch::nn::Sequential model(torch::nn::Linear(2, 2));
  model->register_buffer("adjacency", at::eye(2).to_sparse());
  EXPECT_EQ(
      error_of([&] { share_memory(*model); }),
      "[cohort] share_memory: buffer \"adjacency\" has layout Sparse, and only dense tensors can be in shared memory\n"
      "  hint: share its indices and values, or tensor.to_dense()");
  EXPECT_FALSE(is_shared(model->parameters()[0]));
}

}  // namespace
}  // namespace cohort
