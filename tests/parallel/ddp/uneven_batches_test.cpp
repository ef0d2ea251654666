// Ranks with different numbers of batches: the error names DistributedDataParallel's own exchange, which nobody finds in his
// program, and the likely reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

BACKEND_OF_FILE(both)

namespace cohort {
namespace {

using testing::MatchesRegex;

constexpr const char* kUnevenHint =
    "the ranks do not take the same steps; most often some have more batches than others. Use "
    "data::DistributedSampler, which gives all ranks the same number; without it, stop every epoch at the smallest "
    "number of batches of any rank, which all_reduce with ReduceOp::MIN computes";

struct ScaledImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor weight = register_parameter("weight", torch::ones({2}));
};
TORCH_MODULE(Scaled);

struct CountingImpl : ScaledImpl {
  at::Tensor seen = register_buffer("seen", torch::zeros({3}));
};
TORCH_MODULE(Counting);

template <class Net>
void train(int num_batches) {
  Net net;
  DistributedDataParallel ddp(net);
  for (int i = 0; i < num_batches; ++i) ddp(torch::ones({2})).sum().backward();
}

// Both ranks are there until both have said what they found: one that ends is "gone" to the other.
void wait_for_the_other(int rank) {
  const std::filesystem::path folder = test::worker_arguments().at(0);
  std::ofstream(folder / std::to_string(rank)).close();
  while (!std::filesystem::exists(folder / std::to_string(1 - rank))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Rank 0 has four batches, rank 1 has three and goes on to a barrier.
template <class Net>
void meet_at_a_barrier() {
  init_process_group({.backend = test::backend_of_tests()});
  const int rank = get_rank();
  test::print_error([&] {
    train<Net>(rank == 0 ? 4 : 3);
    barrier();
  });
  wait_for_the_other(rank);
}

COHORT_WORKER(uneven_buffers) { meet_at_a_barrier<Counting>(); }
COHORT_WORKER(uneven_gradients) { meet_at_a_barrier<Scaled>(); }

// The second forward pass of a job rearranges the buckets.
COHORT_WORKER(uneven_from_the_second_batch_on) {
  init_process_group({.backend = test::backend_of_tests()});
  const int rank = get_rank();
  test::print_error([&] {
    train<Scaled>(rank == 0 ? 2 : 1);
    barrier();
  });
  wait_for_the_other(rank);
}

// Rank 1 is done and leaves; it ends when rank 0 has noticed.
COHORT_WORKER(uneven_and_left) {
  init_process_group({.backend = test::backend_of_tests()});
  const int rank = get_rank();
  test::print_error([&] { train<Counting>(rank == 0 ? 4 : 3); });
  destroy_process_group();
  wait_for_the_other(rank);
}

std::string head(const std::string& operation, int rank, const std::string& data) {
  return "\\[cohort\\] " + operation + " #[0-9]+ on group \"default_pg\" failed\n  rank " + std::to_string(rank) +
         " of 2 on [^ ]+, backend " + test::backend_of_tests() + data + "\n";
}

// The root of a small broadcast does not wait on shm: where it comes first, it sees what is wrong in its next call. In place
// everybody waits.
bool may_be_seen_later(const std::string& operation) {
  return operation == "broadcast" && test::backend_of_tests() == "shm" && !std::getenv("COHORT_TEST_IN_PLACE");
}

// An agreement on buckets is two broadcasts: the second one may see it already.
std::string head_of_rank_0(const std::string& operation, const std::string& data) {
  if (!may_be_seen_later(operation)) return head(operation, 0, data);
  return "(" + head("all_reduce", 0, ", 8 B float32") + "|" + head("broadcast", 0, ", 4 B int32") + ")";
}

void expect_mismatch(const char* worker, const std::string& operation, const std::string& data,
                     const std::string& on_shm, const std::string& on_gloo, const std::string& purpose) {
  const test::TemporaryFolder folder;
  const auto results = test::run_workers(worker, {.arguments = {folder.path()}});
  results.expect_success();
  for (const int rank : {0, 1}) {
    const auto own_call = rank == 0 ? head(operation, 0, data) : head("barrier", 1, "");
    const auto later =
        head_of_rank_0(operation, data) +
        "  caused by: the ranks' calls differ since an earlier call, in which not every rank had to wait for the "
        "others\n";
    const auto begin = rank == 0 && may_be_seen_later(operation) ? "(" + own_call + "|" + later + ")" : own_call;
    const auto ddps = on_gloo + ", which is " + purpose;
    const auto causes =
        test::backend_of_tests() == "shm"
            ? "  caused by: rank 0 calls " + on_shm + ", which is " + purpose + "\n  caused by: rank 1 calls barrier\n"
            : "  caused by: Detected mismatch between collectives on ranks: #[0-9]+ is " +
                  (rank == 0 ? ddps : std::string("barrier\\(\\)")) + " on " + test::process_regex(rank) + ", but " +
                  (rank == 0 ? std::string("barrier\\(\\)") : ddps) + " on " + test::process_regex(1 - rank) +
                  "\n(  caused by: [^\n]*\n)?";
    EXPECT_THAT(results[rank].output, MatchesRegex(begin + causes + "  hint: " + kUnevenHint + "\n"));
  }
}

TEST(DdpUneven, BuffersMessage) {
  expect_mismatch("uneven_buffers", "broadcast", ", 12 B float32", "broadcast from rank 0 of 3 float32",
                  "broadcast\\(root 0, float32 \\[3\\]\\)",
                  "DistributedDataParallel's exchange of buffers before a forward pass");
}

TEST(DdpUneven, GradientsMessage) {
  expect_mismatch("uneven_gradients", "all_reduce", ", 8 B float32", "all_reduce\\((PREMUL_)?SUM\\) of 2 float32",
                  "all_reduce\\(SUM, float32 \\[2\\]\\)",
                  "DistributedDataParallel's exchange of gradients in a backward pass");
}

TEST(DdpUneven, BucketsMessage) {
  expect_mismatch("uneven_from_the_second_batch_on", "broadcast", ", 8 B int32", "broadcast from rank 0 of 2 int32",
                  "broadcast\\(root 0, int32 \\[2\\]\\)",
                  "DistributedDataParallel's agreement on buckets before a forward pass");
}

TEST(DdpUneven, RankThatLeftMessage) {
  const test::TemporaryFolder folder;
  const auto results = test::run_workers("uneven_and_left", {.arguments = {folder.path()}});
  results.expect_success();
  EXPECT_EQ(results[1].output, "(no error)\n");
  const std::string if_well = "[^\n]*; if it ended well, ";
  // On Gloo a connection is closed. Where rank 0 comes late, rank 1 has ended already.
  const auto causes = test::backend_of_tests() == "shm"
                          ? "  caused by: " + test::process_regex(1) +
                                " (has left the group by destroying it\n  hint: |has ended\n" + "  hint: " + if_well +
                                ")"
                          : "(  caused by: [^\n]*\n)+  hint: " + if_well;
  EXPECT_THAT(results[0].output,
              MatchesRegex(head_of_rank_0("broadcast", ", 12 B float32") + causes + kUnevenHint + "\n"));
}

}  // namespace
}  // namespace cohort
