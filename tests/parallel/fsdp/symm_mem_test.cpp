// Buffers of gathered parameters in memory that the ranks share.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "tests/parallel/fsdp/gathered_blocks.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::fsdp {
namespace {

using cohort::test::error_of;
using cohort::test::run_rank_threads;
using test::batch;
using test::block_loss;
using test::in_group;

bool is_shared(const Group& group) { return comm::has_shared_memory(group) && !comm::shares_tensors(group); }

TEST(GatheredSymmMem, TrainsAlikeInMemoryThatIsUsedAgain) {
  run_rank_threads(2, [](int rank, const Group& group) {
    if (!comm::has_shared_memory(group)) return;
    auto model = test::blocks_in(group);
    model->set_symm_mem_for_comm();
    for (auto& block : model->module().blocks) block->set_symm_mem_for_comm();
    const auto wanted = test::plain_gradients(2);
    const auto before = comm::shm_memory_allocated();
    size_t after_first = 0;
    for (int step = 0; step < 4; ++step) {
      for (auto& shard : model->parameters()) shard.mutable_grad().reset();
      block_loss(model(batch(rank, 0)), rank, 0).backward();
      test::expect_shards_of(wanted, model->parameters(), group);
      barrier({.group = group});  // both threads count
      if (step == 0) after_first = comm::shm_memory_allocated();
      EXPECT_EQ(comm::shm_memory_allocated(), after_first);
      barrier({.group = group});
    }
    EXPECT_EQ(after_first > before, is_shared(group));
  });
}

TEST(GatheredSymmMem, Buffers) {
  run_rank_threads(2, [](int rank, const Group& group) {
    if (!is_shared(group)) return;
    SymmMemBuffers buffers(group, at::kCPU);
    const auto allocated = [&] {
      barrier({.group = group});
      const auto bytes = comm::shm_memory_allocated();
      barrier({.group = group});
      return bytes;
    };
    const auto none = allocated();
    auto first = buffers.allocate(1000, at::kFloat);
    const auto some = allocated();
    EXPECT_GE(some, none + 2 * 4000);
    EXPECT_EQ(first.sizes(), at::IntArrayRef({1000}));
    EXPECT_EQ(first.scalar_type(), at::kFloat);
    first.fill_(rank);
    auto second = buffers.allocate(500, at::kDouble);  // as many bytes
    second.fill_(7);
    EXPECT_EQ(second.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::all(first == rank).item<bool>());  // each rank has its own
    auto third = buffers.allocate(1000, at::kInt);     // in no such memory
    third.fill_(9);
    EXPECT_TRUE(at::all(first == rank).item<bool>() && at::all(second == 7).item<bool>());
    const auto* const place = first.const_data_ptr();
    const auto part = first.narrow(0, 5, 3);
    first.reset();
    EXPECT_NE(buffers.allocate(1000, at::kFloat).const_data_ptr(), place);  // somebody has a part of it
    EXPECT_EQ(allocated(), some);
    EXPECT_EQ(buffers.allocate(0, at::kFloat).numel(), 0);
  });
}

TEST(GatheredSymmMem, IsUsedAgainWhenNobodyHasIt) {
  run_rank_threads(2, [](int, const Group& group) {
    if (!is_shared(group)) return;
    SymmMemBuffers buffers(group, at::kCPU);
    auto tensor = buffers.allocate(64, at::kFloat);
    const auto* const place = tensor.const_data_ptr();
    tensor.reset();
    EXPECT_EQ(buffers.allocate(64, at::kFloat).const_data_ptr(), place);
  });
}

TEST(GatheredSymmMem, Messages) {
  run_rank_threads(2, [](int, const Group& group) {
    auto model = test::blocks_in(group);
    const bool has_memory = comm::has_shared_memory(group);
    EXPECT_EQ(error_of([&] { model->set_symm_mem_for_comm(); }),
              has_memory ? "(no error)" : "SymmetricMemory does not find allocation backend shm");
    std::vector<std::string> log;
    auto& block = model->module().blocks[0];
    block->set_custom_all_gather(std::make_shared<test::NamedGather>("0", &log));
    EXPECT_EQ(error_of([&] { block->set_symm_mem_for_comm(); }),
              "cannot call set_symm_mem() when all gather comm is custom: cohort::fsdp::test::NamedGather");
    EXPECT_EQ(error_of([&] { block->set_allocate_memory_from_process_group_for_comm(true); }),
              "cannot call set_allocate_memory_from_process_group() when all gather comm is custom: "
              "cohort::fsdp::test::NamedGather");
    auto& other = model->module().blocks[1];
    other->set_custom_reduce_scatter(std::make_shared<test::NamedReduce>("1", &log));
    EXPECT_EQ(error_of([&] { other->set_symm_mem_for_comm(); }),
              "cannot call set_symm_mem() when reduce scatter comm is custom: cohort::fsdp::test::NamedReduce");
    EXPECT_EQ(error_of([&] { other->set_allocate_memory_from_process_group_for_comm(false); }),
              "cannot call set_allocate_memory_from_process_group() when reduce scatter comm is custom: "
              "cohort::fsdp::test::NamedReduce");
    auto& third = model->module().blocks[2];
    third->set_allocate_memory_from_process_group_for_comm(true);
    EXPECT_EQ(error_of([&] { third->set_allocate_memory_from_process_group_for_comm(false); }), "(no error)");
  });
}

}  // namespace
}  // namespace cohort::fsdp
