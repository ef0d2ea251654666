// Works of the backend "shm": order, who runs them, futures, timeouts, ends in any order. Ranks are threads.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <future>
#include <latch>
#include <thread>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "tests/comm/shm/shm_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::Mode;
using test::reduce_on;
using test::run_rank_threads;
using test::run_shm_threads;
using test::text_of_error;
using testing::MatchesRegex;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using Tensors = std::vector<at::Tensor>;

TEST(ShmWork, SynchronousWorkIsDoneWhenItIsHandedOut) {
  run_shm_threads(2, [](int, const Group&, c10d::Backend& backend) {
    const auto tensor = at::ones({3});
    const auto work = reduce_on(backend, {tensor});
    REQUIRE(work->isCompleted() && work->isSuccess());
    REQUIRE(tensor[2].item<float>() == 2);
    REQUIRE(work->result().size() == 1 && work->result()[0].is_same(tensor));
    REQUIRE(work->getSequencenumber() == 1 && backend.getSequenceNumberForGroup() == 1);
  });
}

TEST(ShmWork, IsNotMadeWhereNobodyLooksAtIt) {
  run_shm_threads(2, [](int rank, const Group& group, c10d::Backend& backend) {
    const auto tensor = at::full({3}, rank + 1.0);
    const auto first = all_reduce(tensor, {.group = group});
    REQUIRE(first->isCompleted() && first->isSuccess() && first->wait());
    REQUIRE_EQUAL(test::error_of([&] { first->getFuture(); }),
                  "[cohort] the Work of a synchronous operation has neither results nor a future: the results are in "
                  "the tensors. "
                  "Call it with async_op = true for a Work that has both");
    REQUIRE(all_reduce(tensor, {.group = group}).get() == first.get());
    // One that others look at, one that is not done, and one behind it in the queue.
    REQUIRE(reduce_on(backend, {tensor})->result()[0].is_same(tensor));
    const auto queued = all_reduce(tensor, {.group = group, .async_op = true});
    REQUIRE(queued.get() != first.get());
    const auto behind = all_reduce(tensor, {.group = group});
    REQUIRE(queued->isCompleted() && behind->isCompleted());
    REQUIRE(tensor[2].item<double>() == 3 * 2 * 2 * 2 * 2);
    REQUIRE(backend.getSequenceNumberForGroup() == 5);
  });
}

TEST(ShmWork, RunsInTheOrderOfTheCalls) {
  run_shm_threads(3, [](int, const Group&, c10d::Backend& backend) {
    const auto first = at::ones({1});
    const auto second = at::full({1}, 2.0);
    const auto third = at::full({1}, 3.0);
    const auto a = reduce_on(backend, {first}, Mode::kAsync);
    const auto b = reduce_on(backend, {second}, Mode::kAsync);
    const auto c = reduce_on(backend, {third});
    REQUIRE(a->isCompleted() && b->isCompleted() && c->isCompleted());
    REQUIRE(first.item<float>() == 3 && second.item<float>() == 6 && third.item<float>() == 9);
  });
}

TEST(ShmWork, WaitingForALaterOneRunsTheEarlierOnes) {
  run_shm_threads(2, [](int, const Group&, c10d::Backend& backend) {
    std::vector<WorkPtr> works;
    const auto tensor = at::ones({1000});
    for (int i = 0; i < 20; ++i) works.push_back(reduce_on(backend, {tensor}, Mode::kAsync));
    works.back()->wait();
    for (const auto& work : works) REQUIRE(work->isCompleted());
    REQUIRE(tensor[999].item<float>() == 1 << 20);
  });
}

TEST(ShmWork, CompletesWithoutAnybodyWaiting) {
  run_shm_threads(2, [](int, const Group&, c10d::Backend& backend) {
    for (int i = 0; i < 3; ++i) {
      const auto work = reduce_on(backend, {at::ones({5})}, Mode::kAsync);
      while (!work->isCompleted()) std::this_thread::sleep_for(std::chrono::microseconds(100));
      // Longer than the progress thread keeps its attention.
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
    }
  });
}

TEST(ShmWork, SeveralThreadsWaitForOneWork) {
  run_shm_threads(2, [](int rank, const Group&, c10d::Backend& backend) {
    const auto tensor = at::ones({1 << 20});
    const auto work = reduce_on(backend, {tensor}, Mode::kAsync);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([work] { work->wait(); });
    for (auto& thread : threads) thread.join();
    REQUIRE(work->isSuccess() && tensor[7].item<float>() == 2);
  });
}

TEST(ShmWork, FutureHasTheTensors) {
  run_shm_threads(2, [](int, const Group&, c10d::Backend& backend) {
    const auto tensor = at::ones({2});
    const auto work = reduce_on(backend, {tensor}, Mode::kAsync);
    const auto future = work->getFuture();
    REQUIRE(future->elementType()->str() == "Tensor[]");
    future->wait();
    REQUIRE(future->value().toTensorVector()[0].is_same(tensor));
    REQUIRE(work->getFuture()->value().toTensorVector()[0].is_same(tensor));
    REQUIRE(reduce_on(backend, {tensor})->getFuture()->completed());
  });
}

TEST(ShmWork, WhoAsksForAFutureDoesNotWaitForRanks) {
  run_shm_threads(2, [](int rank, const Group&, c10d::Backend& backend) {
    Tensors go{at::ones({1})};
    const auto tensor = at::ones({100'000});
    // Rank 1 comes to the operation only after rank 0 has gone on.
    if (rank == 1) backend.recv(go, 0, 0)->wait();
    const auto work = reduce_on(backend, {tensor}, Mode::kAsync);
    const auto future = work->getFuture();
    if (rank == 0) REQUIRE(!future->completed());
    if (rank == 0) backend.send(go, 1, 0)->wait();
    future->wait();
    REQUIRE(tensor[99'999].item<float>() == 2);
  });
}

TEST(ShmWork, FuturesOfManyOperationsInTurn) {
  run_shm_threads(3, [](int rank, const Group&, c10d::Backend& backend) {
    for (int i = 0; i < 300; ++i) {
      // Who comes first changes, and now and then somebody is later than the others are ready to wait.
      if (i % 3 == rank && i % 20 < 3) std::this_thread::sleep_for(std::chrono::microseconds(i * 2));
      const auto first = at::full({i % 5 ? 7 : 70'000}, static_cast<double>(i));
      const auto second = at::ones({2});
      const auto earlier = reduce_on(backend, {second}, i % 4 ? Mode::kSync : Mode::kAsync);
      const auto future = reduce_on(backend, {first}, Mode::kAsync)->getFuture();
      const auto third = at::ones({2});
      reduce_on(backend, {third}, i % 2 ? Mode::kSync : Mode::kAsync)->wait();
      future->wait();
      REQUIRE(first[6].item<float>() == 3 * i && second[1].item<float>() == 3 && third[1].item<float>() == 3);
      REQUIRE(earlier->isCompleted() && future->value().toTensorVector()[0].is_same(first));
    }
  });
}

TEST(ShmWork, CallbackOfAFutureMayUseTheGroup) {
  run_shm_threads(2, [](int, const Group&, c10d::Backend& backend) {
    const auto tensor = at::ones({2});
    const auto again = reduce_on(backend, {at::ones({1})}, Mode::kAsync)
                           ->getFuture()
                           ->then(
                               [&](c10::ivalue::Future&) {
                                 reduce_on(backend, {tensor})->wait();
                                 return c10::IValue(1);
                               },
                               c10::IntType::get());
    again->wait();
    REQUIRE(tensor[0].item<float>() == 2);
  });
}

TEST(ShmWork, WaitWithATimeOutLeavesTheOperationGoingMessage) {
  std::latch is_over(1);
  run_shm_threads(2, [&](int rank, const Group&, c10d::Backend& backend) {
    const auto tensor = at::ones({4});
    if (rank == 1) {
      is_over.wait();
      reduce_on(backend, {tensor})->wait();
      return;
    }
    const auto work = reduce_on(backend, {tensor}, Mode::kAsync);
    const auto text = text_of_error([&] { work->wait(std::chrono::milliseconds(50)); });
    EXPECT_THAT(text, MatchesRegex("\\[cohort\\] all_reduce #1 on group \"threads\" failed\n"
                                   "  rank 0 of 2 on [^ ]+, backend shm, 16 B float32\n"
                                   "  caused by: Operation timed out! It did not end within the 50 ms that wait\\(\\) "
                                   "was given\n"
                                   "  hint: wait for it again, with more time or without a timeout: the operation "
                                   "goes on"));
    REQUIRE(!work->isCompleted());
    is_over.count_down();
    REQUIRE(work->wait(std::chrono::hours(1)));  // told of the end, not by its own
    REQUIRE(tensor[0].item<float>() == 2);
  });
}

TEST(ShmWork, TheLongestTimeIsNoLimit) {
  run_shm_threads(2, [&](int rank, const Group&, c10d::Backend& backend) {
    using std::chrono::milliseconds;
    const auto late = [&] {
      if (rank == 1) std::this_thread::sleep_for(milliseconds(50));
    };
    backend.setTimeout(milliseconds::max());
    late();
    const auto tensor = at::full({4}, rank + 1.0);
    REQUIRE(reduce_on(backend, {tensor}, Mode::kAsync)->wait(milliseconds::max()));
    REQUIRE(tensor[3].item<float>() == 3);
    late();
    Tensors word{at::full({2}, rank + 5.0)};
    REQUIRE((rank == 1 ? backend.send(word, 0, 9) : backend.recv(word, 1, 9))->wait(milliseconds::max()));
    REQUIRE(word[0][1].item<float>() == 6);
    c10d::BarrierOptions options;
    options.timeout = milliseconds::max();
    late();
    backend.monitoredBarrier(options, /*waitAllRanks=*/true);
    late();
    backend.barrier(options)->wait();
  });
}

TEST(ShmWork, EndOfTheGroupCompletesWhatWasStarted) {
  run_shm_threads(2, [&](int rank, const Group& group, c10d::Backend& backend) {
    const auto first = at::full({4}, rank + 1.0);
    const auto second = at::full({3}, rank + 5.0);
    constexpr int64_t kCount = 1 << 20;
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      reduce_on(backend, {first})->wait();
      reduce_on(backend, {second})->wait();
      Tensors received{at::empty({kCount})};
      backend.recv(received, 0, 0)->wait();
      REQUIRE(received[0][kCount - 1].item<float>() == 7);
    } else {
      const auto work = reduce_on(backend, {first}, Mode::kAsync);
      reduce_on(backend, {second}, Mode::kAsync);  // dropped
      Tensors sent{at::full({kCount}, 7.0)};
      backend.send(sent, 1, 0);  // dropped
      backend.shutdown();
      REQUIRE(work->isCompleted() && work->isSuccess());
      EXPECT_THAT(text_of_error([&] { reduce_on(backend, {at::ones({4})})->wait(); }),
                  testing::HasSubstr("the group was destroyed"));
    }
    REQUIRE(first[0].item<float>() == 3 && second[0].item<float>() == 11);
    EXPECT_EQ(group->getSize(), 2);
  });
}

TEST(ShmWork, EndOfTheGroupTellsWhatItCouldNotCompleteMessage) {
  testing::internal::CaptureStderr();
  run_shm_threads(2, [&](int rank, const Group&, c10d::Backend& backend) {
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return backend.shutdown();
    }
    const auto work = reduce_on(backend, {at::ones({4})}, Mode::kAsync);
    reduce_on(backend, {at::ones({4})}, Mode::kAsync);
    backend.shutdown();
    EXPECT_THAT(
        text_of_error([&] { work->wait(); }),
        MatchesRegex("\\[cohort\\] all_reduce #1 on group \"threads\" failed\n"
                     "  rank 0 of 2 on [^ ]+, backend shm, 16 B float32\n"
                     "  caused by: rank 1 \\(pid [0-9]+ on [^ ]+\\) has left the group by destroying it\n(.|\n)*"));
  });
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      MatchesRegex(
          "\\[cohort\\] warning: group \"threads\" was destroyed with 2 operation\\(s\\) that nobody waited for "
          "and that could not be completed. Call wait\\(\\) on every Work before destroy_process_group\\(\\).\n"
          "all_reduce #1 on group \"threads\" failed\n(.|\n)*"));
}

TEST(ShmWork, WorksOutliveTheGroup) {
  std::vector<WorkPtr> works(2);
  run_shm_threads(2, [&](int rank, const Group&, c10d::Backend& backend) {
    works[static_cast<size_t>(rank)] = reduce_on(backend, {at::ones({4})}, Mode::kAsync);
    works[static_cast<size_t>(rank)]->wait();
    Tensors received{at::empty({3})};
    backend.recv(received, 1 - rank, 5);  // dropped, and never sent
  });
  for (const auto& work : works) EXPECT_TRUE(work->wait());
}

TEST(ShmWork, DroppedSendArrives) {
  run_shm_threads(2, [](int rank, const Group&, c10d::Backend& backend) {
    constexpr int64_t kCount = 1 << 20;
    if (rank == 0) {
      Tensors sent{at::full({kCount}, 3.0)};
      backend.send(sent, 1, 0);
      sent.clear();
    } else {
      Tensors received{at::empty({kCount})};
      backend.recv(received, 0, 0)->wait();
      REQUIRE(received[0][kCount - 1].item<float>() == 3);
    }
    backend.barrier({})->wait();
  });
}

// As PyTorch's PowerSGD does: the future's own thread must not be the one that runs the later operation.
TEST(ShmWork, CallbackOfAFutureMayWaitForAFuture) {
  run_shm_threads(2, [](int, const Group&, c10d::Backend& backend) {
    const auto tensor = at::ones({2});
    const auto wait_for_another = [&](c10::ivalue::Future&) {
      const auto inner = reduce_on(backend, {tensor}, Mode::kAsync)->getFuture();
      inner->wait();
      return c10::IValue(inner->value());
    };
    auto future = reduce_on(backend, {at::ones({1})}, Mode::kAsync)->getFuture();
    for (int depth = 0; depth < 3; ++depth) future = future->then(wait_for_another, future->elementType());
    future->wait();
    REQUIRE(tensor[0].item<float>() == 8);
  });
}

TEST(ShmWork, CallbackOfAFutureMayWaitForWhatWasQueuedBefore) {
  run_shm_threads(2, [](int, const Group&, c10d::Backend& backend) {
    for (int i = 0; i < 20; ++i) {
      const auto first = reduce_on(backend, {at::ones({1})}, Mode::kAsync)->getFuture();
      const auto second = reduce_on(backend, {at::ones({1})}, Mode::kAsync)->getFuture();
      const auto after_both = first->then(
          [second](c10::ivalue::Future&) {
            second->wait();
            return c10::IValue(second->value());
          },
          first->elementType());
      after_both->wait();
      REQUIRE(after_both->value().toTensorVector()[0].item<float>() == 2);
    }
  });
}

TEST(ShmWork, ReceiveHasAFutureAndASource) {
  run_shm_threads(2, [](int rank, const Group&, c10d::Backend& backend) {
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      Tensors sent{at::ones({2})};
      backend.send(sent, 1, 9)->wait();
      return;
    }
    Tensors received{at::zeros({2})};
    const auto work = backend.recvAnysource(received, 9);
    work->getFuture()->wait();
    REQUIRE(work->isSuccess() && work->sourceRank() == 0);
    REQUIRE(received[0][1].item<float>() == 1);
  });
}

TEST(ShmWork, AbortEndsARunningOperationMessage) {
  run_shm_threads(2, [](int rank, const Group&, c10d::Backend& backend) {
    if (rank == 1) return;
    auto running = std::async(std::launch::async,
                              [&] { return text_of_error([&] { reduce_on(backend, {at::ones({4})})->wait(); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    backend.abort();
    EXPECT_THAT(running.get(), testing::HasSubstr("all_reduce #1 on group \"threads\" failed"));
    const auto later = reduce_on(backend, {at::ones({4})}, Mode::kAsync);
    EXPECT_THAT(text_of_error([&] { later->wait(); }), testing::HasSubstr("abort"));
  });
}

TEST(ShmWork, SixtyFourGroupsAtOnce) {
  run_rank_threads(2, [](int rank, const Group& outer) {
    std::vector<BackendPtr> backends;
    for (int i = 0; i < 64; ++i) {
      const comm::BackendRequest request{
          .store = c10::make_intrusive<c10d::PrefixStore>("group" + std::to_string(i), outer->getStore()),
          .rank = rank,
          .world_size = 2,
          .timeout = std::chrono::seconds(100),
          .group_name = "group " + std::to_string(i),
          .global_ranks = {},
          .watch = nullptr,
          .device_id = std::nullopt};
      backends.push_back(comm::make_shm_backend(request));
    }
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 64; ++i) {
      tensors.push_back(at::full({100}, i));
      works.push_back(reduce_on(*backends[static_cast<size_t>(i)], {tensors.back()}, Mode::kAsync));
    }
    // Last things first on one of the ranks.
    for (int i = 0; i < 64; ++i) works[static_cast<size_t>(rank == 0 ? i : 63 - i)]->wait();
    for (int i = 0; i < 64; ++i) REQUIRE(tensors[static_cast<size_t>(i)][99].item<int64_t>() == 2 * i);
  });
}

}  // namespace
}  // namespace cohort
