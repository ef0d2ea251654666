#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/rank_processes.h"

namespace cohort {
namespace {

using test::run_workers;
using testing::MatchesRegex;

void check_equal(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
  if (!at::equal(actual, expected)) {
    throw std::runtime_error(c10::str(what, ": expected ", expected, ", got ", actual));
  }
}

at::Tensor numbers(int rank, int64_t count) { return at::arange(count, at::kDouble).add_(100 * rank); }

at::Tensor sum_of_numbers(int world_size, int64_t count) {
  auto sum = at::zeros({count}, at::kDouble);
  for (int rank = 0; rank < world_size; ++rank) sum += numbers(rank, count);
  return sum;
}

// Every collective, synchronous and not, on tensors of several lengths, against closed forms.
void run_collectives(bool async_op) {
  const int rank = get_rank();
  const int size = get_world_size();
  const auto wait = [&](const WorkPtr& work) {
    if (async_op) work->wait();
  };
  for (const int64_t count : {0, 1, 2, 3, 4, 7, 1000}) {
    auto tensor = numbers(rank, count);
    wait(all_reduce(tensor, {.async_op = async_op}));
    check_equal(tensor, sum_of_numbers(size, count), "all_reduce");

    tensor = numbers(rank, count);
    wait(all_reduce(tensor, {.op = ReduceOp::AVG, .async_op = async_op}));
    check_equal(tensor, sum_of_numbers(size, count).div_(size), "all_reduce AVG");

    tensor = numbers(rank, count);
    wait(all_reduce(tensor, {.op = ReduceOp::MAX, .async_op = async_op}));
    check_equal(tensor, numbers(size - 1, count), "all_reduce MAX");

    tensor = numbers(rank, count);
    wait(broadcast(tensor, size - 1, {.async_op = async_op}));
    check_equal(tensor, numbers(size - 1, count), "broadcast");

    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> all;
    for (int r = 0; r < size; ++r) {
      outputs.push_back(at::empty({count}, at::kDouble));
      all.push_back(numbers(r, count));
    }
    wait(all_gather(outputs, numbers(rank, count), {.async_op = async_op}));
    for (int r = 0; r < size; ++r) check_equal(outputs[r], all[r], "all_gather");

    auto flat = at::empty({count * size}, at::kDouble);
    wait(all_gather_single(flat, numbers(rank, count), {.async_op = async_op}));
    check_equal(flat, at::cat(all), "all_gather_single");

    if (count == 0) continue;  // Gloo's reduce_scatter needs elements
    std::vector<at::Tensor> inputs;
    for (int r = 0; r < size; ++r) inputs.push_back(numbers(rank, count) + r);
    auto output = at::empty({count}, at::kDouble);
    wait(reduce_scatter(output, inputs, {.async_op = async_op}));
    check_equal(output, sum_of_numbers(size, count) + rank * size, "reduce_scatter");

    auto scattered = at::empty({count}, at::kDouble);
    wait(reduce_scatter_single(scattered, at::cat(inputs), {.op = ReduceOp::AVG, .async_op = async_op}));
    check_equal(scattered, (sum_of_numbers(size, count) + rank * size).div_(size), "reduce_scatter_single AVG");
    wait(barrier({.async_op = async_op}));
  }
}

COHORT_WORKER(all_collectives) {
  init_process_group("gloo");
  run_collectives(/*async_op=*/false);
  run_collectives(/*async_op=*/true);
}

TEST(Collectives, EqualClosedFormsOnTwoRanks) { run_workers("all_collectives", {.world_size = 2}).expect_success(); }
TEST(Collectives, EqualClosedFormsOnThreeRanks) { run_workers("all_collectives", {.world_size = 3}).expect_success(); }

COHORT_WORKER(point_to_point) {
  init_process_group("gloo");
  const int rank = get_rank();
  auto tensor = at::full({3}, rank);
  if (rank == 0) {
    send(tensor.fill_(7), 1);
    send(tensor.fill_(8), 1, {.tag = 5});
    if (recv(tensor) != 2) throw std::runtime_error("recv from any source should have named rank 2");
    check_equal(tensor, at::full({3}, 2), "recv any");
  } else if (rank == 1) {
    auto tagged = at::empty({3}, at::kLong);
    const auto later = irecv(tagged, 0, {.tag = 5});
    recv(tensor, 0);
    later->wait();
    check_equal(tensor, at::full({3}, 7), "recv");
    check_equal(tagged, at::full({3}, 8), "irecv with tag");
  } else {
    isend(tensor, 0)->wait();
  }
  barrier();
  for (const bool sending : {true, false}) {
    try {
      sending ? send(tensor, rank) : void(recv(tensor, rank));
      throw std::runtime_error("a rank talked to itself");
    } catch (const c10::ValueError&) {
    }
  }
}

TEST(Collectives, PointToPointWithTagsAndAnySource) {
  run_workers("point_to_point", {.world_size = 3}).expect_success();
}

COHORT_WORKER(complex_sum) {
  init_process_group("gloo");
  auto tensor = at::complex(at::ones({3}), at::full({3}, 2.0));
  all_reduce(tensor);
  check_equal(tensor, at::complex(at::full({3}, 2.0), at::full({3}, 4.0)), "complex all_reduce");
  try {
    all_reduce(tensor, {.op = ReduceOp::MAX});
    throw std::runtime_error("MAX of complex numbers was accepted");
  } catch (const c10::ValueError&) {
  }
}

TEST(Collectives, SumsComplexNumbers) { run_workers("complex_sum").expect_success(); }

COHORT_WORKER(reduces_by_one_operation) {
  init_process_group("gloo");
  auto tensor = at::full({2}, get_rank() + 1.0);
  all_reduce(tensor, ReduceOp::MAX);
  check_equal(tensor, at::full({2}, 2.0), "MAX");
  all_reduce(tensor, {});
  check_equal(tensor, at::full({2}, 4.0), "nothing said: SUM");
  all_reduce(tensor, premul_sum(0.25));
  check_equal(tensor, at::full({2}, 2.0), "PREMUL_SUM");
  tensor += get_rank();
  all_reduce(tensor, ReduceOp::AVG);
  check_equal(tensor, at::full({2}, 2.5), "AVG");
}

TEST(Collectives, ReducesByOneOperation) { run_workers("reduces_by_one_operation").expect_success(); }

COHORT_WORKER(bad_arguments) {
  init_process_group("gloo");
  const auto expect = [](auto fn, const std::string& text) {
    try {
      fn();
    } catch (const c10::ValueError& error) {
      if (error.what_without_backtrace() == text) return;
      throw std::runtime_error(std::string("got: ") + error.what_without_backtrace());
    }
    throw std::runtime_error("no error, expected: " + text);
  };
  const auto two = at::ones({2});
  expect([&] { all_gather({two}, two); }, "[cohort] all_gather needs one tensor per rank, 2, got 1");
  expect([&] { all_gather_single(two, two); },
         "[cohort] all_gather_single needs a tensor of world_size times 2 = 4 elements, got 2");
  expect([&] { reduce_scatter_single(two, two); },
         "[cohort] reduce_scatter_single needs a tensor of world_size times 2 = 4 elements, got 2");
  expect([&] { broadcast(two, 2); }, "Rank 2 is out of range. Valid ranks are 0 to 1 (world_size=2)");
  expect([&] { all_reduce(at::Tensor()); }, "[cohort] Invalid tensor for all_reduce: it is undefined");
}

TEST(Collectives, BadArgumentsMessage) { run_workers("bad_arguments").expect_success(); }

// Ranks 0 and 2 work until rank 1 is killed; then they print what they were told.
COHORT_WORKER(loses_a_rank) {
  init_process_group("gloo");
  auto tensor = at::ones({1 << 18});
  try {
    for (int i = 0;; ++i) {
      all_reduce(tensor);
      if (i == 3) std::cout << "working\n" << std::flush;
    }
  } catch (const c10::DistBackendError& error) {
    std::cout << error.what_without_backtrace() << "\n" << std::flush;
  }
}

TEST(Collectives, KilledRankIsNamedByTheOthersMessage) {
  test::Workers workers("loses_a_rank", {.world_size = 3});
  for (int rank = 0; rank < 3; ++rank) workers.wait_for_output(rank, "working");
  const int pid = workers.pid(1);
  workers.signal(1, SIGKILL);
  const auto results = workers.wait();
  EXPECT_EQ(results[1].exit_code, -SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, 0);
    EXPECT_THAT(results[rank].output,
                MatchesRegex("working\n\\[cohort\\] all_reduce #[0-9]+ on group \"default_pg\" failed\n  rank " +
                             std::to_string(rank) +
                             " of 3 on [^ ]+, backend gloo, 1.0 MiB float32\n"
                             "  caused by: rank 1 \\(pid " +
                             std::to_string(pid) +
                             " on [^ ]+\\) is gone\n"
                             "(  caused by: [^\n]*\n)?"
                             "  hint: look at the output of rank 1 for the reason\n"));
  }
}

COHORT_WORKER(waits_for_a_stopped_rank) {
  init_process_group("gloo");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  set_pg_timeout(std::chrono::seconds(2));
  std::cout << "ready\n" << std::flush;
  if (get_rank() == 1) raise(SIGSTOP);
  try {
    all_reduce(tensor);
  } catch (const c10::DistBackendError& error) {
    std::cout << error.what_without_backtrace() << "\n" << std::flush;
  }
}

TEST(Collectives, TimeOutNamesTheOptionMessage) {
  test::Workers workers("waits_for_a_stopped_rank", {});
  workers.wait_for_output(0, "failed");
  workers.signal(1, SIGKILL);
  const auto results = workers.wait();
  EXPECT_THAT(
      results[0].output,
      MatchesRegex(
          "ready\n\\[cohort\\] all_reduce #2 on group \"default_pg\" failed\n"
          "  rank 0 of 2 on [^ ]+, backend gloo, 16 B float32\n"
          "  caused by: no answer from the other ranks within the group's timeout of 2.0 s\n"
          "  caused by: rank 1 \\(pid [0-9]+ on [^ ]+\\) has not arrived: it is stopped \\(SIGSTOP or a debugger\\)\n"
          "  caused by: .*\n"
          "  hint: continue the stopped rank \\(kill -CONT PID\\), or end it\n"));
}

}  // namespace
}  // namespace cohort
