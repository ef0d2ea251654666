#include "cohort/comm/process/tensor_channel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "cohort/comm/process/share_memory.h"
#include "cohort/comm/process/spawn.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/wait_until_gone.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_workers;
using namespace std::chrono_literals;

int worker_rank() { return std::stoi(getenv("RANK")); }

// One of this run, whatever else the machine does: its port is.
std::string channel_name(const std::string& what = "test") { return what + getenv("MASTER_PORT"); }

std::string own_name(const std::string& what) { return what + std::to_string(getpid()); }

struct Held {
  size_t fds = 0;
  size_t mappings = 0;
  bool operator==(const Held&) const = default;
};

Held held() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  Held now{static_cast<size_t>(std::distance(begin(fds), end(fds))), 0};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) now.mappings += line.find("memfd:cohort") != std::string::npos;
  return now;
}

std::string acknowledgement(comm::TensorChannel& channel) { return std::to_string(channel.receive().item<int64_t>()); }
void acknowledge(comm::TensorChannel& channel, int64_t number) { channel.send(at::scalar_tensor(number, at::kLong)); }

// Two processes that were started apart. Rank 0 sends a view with gaps; rank 1 writes into it.
COHORT_WORKER(channel_two_processes) {
  if (worker_rank() == 0) {
    comm::TensorListener listener(channel_name());
    auto channel = listener.accept(60s);
    const auto whole = at::arange(24, at::kFloat).view({4, 6});
    const auto view = whole.slice(1, 1, 6, 2).t();
    channel.send(view);
    REQUIRE_EQUAL(acknowledgement(channel), "1");
    REQUIRE(at::equal(view, at::full({3, 4}, -1.F)));
    REQUIRE(at::equal(whole.select(1, 0), at::tensor({0.F, 6.F, 12.F, 18.F})));
    whole.fill_(5);
    acknowledge(channel, 2);
    REQUIRE_EQUAL(acknowledgement(channel), "3");
  } else {
    auto channel = comm::TensorChannel::connect(channel_name());
    REQUIRE(channel.peer_pid() > 0 && channel.peer_pid() != getpid());
    auto view = channel.receive();
    REQUIRE(view.sizes() == at::IntArrayRef({3, 4}) && view.strides() == at::IntArrayRef({2, 6}));
    REQUIRE(view.storage_offset() == 1 && view.storage().nbytes() == 96 && is_shared(view));
    REQUIRE(at::equal(view, at::arange(24, at::kFloat).view({4, 6}).slice(1, 1, 6, 2).t()));
    view.fill_(-1);
    acknowledge(channel, 1);
    REQUIRE_EQUAL(acknowledgement(channel), "2");
    REQUIRE(at::equal(view, at::full({3, 4}, 5.F)));
    acknowledge(channel, 3);
  }
}

TEST(TensorChannel, BothProcessesUseOneMemoryAndViewsKeepTheirStrides) {
  run_workers("channel_two_processes", {.world_size = 2}).expect_success();
}

// The message holds the memory: the sender has ended before anybody receives.
COHORT_WORKER(channel_sender_ends) {
  if (worker_rank() == 0) {
    comm::TensorListener listener(channel_name());
    listener.accept(60s).send(at::full({1000}, 3.0));
    _exit(0);
  }
  auto channel = comm::TensorChannel::connect(channel_name());
  REQUIRE(test::wait_until_gone(channel.peer_pid()));
  REQUIRE(channel.poll());
  const auto tensor = channel.receive();
  REQUIRE(at::equal(tensor, at::full({1000}, 3.0)));
  const auto pid = std::to_string(channel.peer_pid());
  REQUIRE_EQUAL(error_of([&] { channel.receive(); }), "[cohort] receive on a tensor channel: the other end (process " +
                                                          pid + ") is closed, and all that it has sent was received");
  REQUIRE_EQUAL(error_of([&] { channel.send(tensor); }), "[cohort] send on a tensor channel: the other end (process " +
                                                             pid + ") is closed, nobody will receive the tensor");
}

TEST(TensorChannel, WhatWasSentOutlivesItsSenderMessage) {
  run_workers("channel_sender_ends", {.world_size = 2}).expect_success();
}

COHORT_WORKER(channel_killed) {
  if (worker_rank() == 0) {
    comm::TensorListener listener(channel_name());
    auto channel = listener.accept(60s);
    channel.send(at::ones({100}));
    std::cout << "sent\n" << std::flush;
    pause();
  }
  auto channel = comm::TensorChannel::connect(channel_name());
  auto tensor = channel.receive();
  std::cout << "waits\n" << std::flush;
  const auto error = error_of([&] { channel.receive(); });
  REQUIRE_EQUAL(error, "[cohort] receive on a tensor channel: the other end (process " +
                           std::to_string(channel.peer_pid()) + ") is closed, and all that it has sent was received");
  tensor.add_(1);
  REQUIRE(at::equal(tensor, at::full({100}, 2.F)));
}

TEST(TensorChannel, AKilledSenderEndsTheWaitAndItsMemoryStays) {
  test::Workers workers("channel_killed", {.world_size = 2});
  workers.wait_for_output(0, "sent");
  workers.wait_for_output(1, "waits");
  workers.signal(0, SIGKILL);
  const auto results = workers.wait();
  EXPECT_EQ(results[0].exit_code, -SIGKILL);
  EXPECT_EQ(results[1].exit_code, 0) << results[1].errors;
}

// Ends made before the fork: the first rank sends to the second, past the parent.
COHORT_WORKER(channel_between_ranks) {
  auto [first, second] = comm::TensorChannel::make_pair();
  auto context = spawn(
      [&](int rank) {
        if (rank == 0) {
          second.close();
          const auto tensor = at::zeros({3});
          first.send(tensor);
          REQUIRE_EQUAL(acknowledgement(first), "7");
          REQUIRE(at::equal(tensor, at::full({3}, 7.F)));
        } else {
          first.close();
          second.receive().fill_(7);
          acknowledge(second, 7);
          REQUIRE_EQUAL(
              error_of([&] { second.receive(); }),
              "[cohort] receive on a tensor channel: the other end is closed, and all that it has sent was received");
        }
      },
      2, false);
  first.close();
  second.close();
  while (!context.join()) {
  }
}

TEST(TensorChannel, ConnectsRanksOfSpawnMessage) {
  run_workers("channel_between_ranks", {.world_size = 1}).expect_success();
}

TEST(TensorChannel, EveryKindOfTensorArrivesAsItIs) {
  auto [a, b] = comm::TensorChannel::make_pair();
  const auto parameter = at::ones({2, 2}).requires_grad_(true);
  const std::vector<at::Tensor> tensors = {at::tensor({1, 2}, at::kLong),
                                           at::ones({2}, at::kBool),
                                           at::rand({3}, at::kBFloat16),
                                           at::rand({2}, at::kComplexFloat),
                                           at::rand({4}, at::kHalf),
                                           at::tensor({250}, at::kByte),
                                           at::rand({3}).to(at::kFloat8_e4m3fn),
                                           at::scalar_tensor(4.5),
                                           at::empty({0, 3}),
                                           at::empty({2, 0}).t(),
                                           at::ones({2}).expand({3, 2}),
                                           parameter,
                                           at::ones({1, 1, 1, 1, 1, 1, 1, 1}),
                                           at::arange(10).slice(0, 10)};
  for (const auto& tensor : tensors) {
    a.send(tensor);
    const auto received = b.receive();
    EXPECT_EQ(received.scalar_type(), tensor.scalar_type());
    EXPECT_EQ(received.sizes(), tensor.sizes());
    EXPECT_EQ(received.strides(), tensor.strides());
    EXPECT_EQ(received.requires_grad(), tensor.requires_grad());
    if (tensor.numel() > 0) {
      EXPECT_EQ(received.data_ptr(), tensor.data_ptr());
      EXPECT_TRUE(received.is_alias_of(tensor));
    }
  }
  EXPECT_TRUE(at::equal(parameter, at::ones({2, 2})));
}

TEST(TensorChannel, OneStorageForWhatIsSentTwiceAndOneDescriptorForAModelsTensors) {
  const auto before = held();
  {
    auto [a, b] = comm::TensorChannel::make_pair();
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 50; ++i) tensors.push_back(at::full({10}, i));
    share_memory(tensors);
    std::vector<at::Tensor> received;
    for (int round = 0; round < 2; ++round) {
      for (const auto& tensor : tensors) {
        a.send(tensor);
        received.push_back(b.receive());
      }
    }
    for (size_t i = 0; i < 50; ++i) EXPECT_TRUE(received[i].is_alias_of(received[i + 50]));
    EXPECT_EQ(held().fds, before.fds + 3);
    EXPECT_EQ(held().mappings, before.mappings + 1);
  }
  EXPECT_EQ(held(), before);
}

// A slow receiver holds the sender up, nothing is lost, and nothing is left of what both have dropped.
COHORT_WORKER(channel_many) {
  constexpr int kCount = 500;
  if (worker_rank() == 0) {
    comm::TensorListener listener(channel_name());
    auto channel = listener.accept(60s);
    const auto before = held();
    for (int i = 0; i < kCount; ++i) channel.send(at::full({i % 7}, i));
    REQUIRE_EQUAL(acknowledgement(channel), "1");
    REQUIRE(held() == before);
    return;
  }
  auto channel = comm::TensorChannel::connect(channel_name());
  const auto before = held();
  std::this_thread::sleep_for(300ms);
  for (int i = 0; i < kCount; ++i) REQUIRE(at::equal(channel.receive(), at::full({i % 7}, i)));
  REQUIRE(held() == before);
  REQUIRE(!channel.poll());
  REQUIRE(!channel.poll(1ms));
  acknowledge(channel, 1);
}

TEST(TensorChannel, ManyTensorsLeaveNothingBehind) { run_workers("channel_many", {.world_size = 2}).expect_success(); }

TEST(TensorChannel, BothWaysAtOnce) {
  auto [a, b] = comm::TensorChannel::make_pair();
  const auto run = [](comm::TensorChannel& channel) {
    std::thread sender([&] {
      for (int i = 0; i < 300; ++i) acknowledge(channel, i);
    });
    for (int i = 0; i < 300; ++i) EXPECT_EQ(acknowledgement(channel), std::to_string(i));
    sender.join();
  };
  std::thread other([&, &end = b] { run(end); });
  run(a);
  other.join();
}

TEST(TensorChannel, RefusesWhatItCannotSendMessage) {
  auto ends = comm::TensorChannel::make_pair();
  const auto error = [&](const at::Tensor& tensor) { return error_of([&] { ends.first.send(tensor); }); };
  EXPECT_EQ(error(at::empty({2}, at::kMeta)),
            "[cohort] send: the tensor is on device meta, and only CPU tensors can be in shared memory\n  hint: share "
            "tensor.cpu()");
  EXPECT_EQ(error(at::eye(2).to_sparse_csr()),
            "[cohort] send: the tensor has layout SparseCsr, and only dense tensors can be in shared memory\n"
            "  hint: share its indices and values, or tensor.to_dense()");
  EXPECT_EQ(
      error(at::ones({2}).requires_grad_(true) * 2),
      "[cohort] send: the tensor requires a gradient and is the result of an operation, whose history cannot cross to "
      "another process\n  hint: send tensor.detach()");
  EXPECT_EQ(error(at::rand({2}, at::kComplexFloat).conj()),
            "[cohort] send: the tensor is a lazy conjugate of its memory\n  hint: send tensor.resolve_conj()");
  EXPECT_EQ(error(at::_neg_view(at::rand({2}))),
            "[cohort] send: the tensor is a lazy negative of its memory\n  hint: send tensor.resolve_neg()");
  auto by_libtorch = at::ones({2});
  by_libtorch.share_memory_();
  EXPECT_EQ(error(by_libtorch),
            "[cohort] send: the tensor was shared by Tensor::share_memory_() or torch.multiprocessing, whose files can "
            "shrink under "
            "their readers\n  hint: share it with cohort::share_memory (torchcohort.share_memory) instead");
  EXPECT_EQ(error(at::ones(std::vector<int64_t>(65, 1))), "[cohort] send: the tensor has 65 dimensions, more than 64");
  EXPECT_FALSE(ends.second.poll());
}

TEST(TensorChannel, ClosedEndsSaySoMessage) {
  auto ends = comm::TensorChannel::make_pair();
  auto moved = std::move(ends.first);
  EXPECT_EQ(error_of([&] { ends.first.receive(); }),
            "[cohort] receive on a tensor channel: this end was closed, or moved away");
  moved.close();
  moved.close();
  EXPECT_EQ(error_of([&] { moved.send(at::ones({1})); }),
            "[cohort] send on a tensor channel: this end was closed, or moved away");
  EXPECT_EQ(error_of([&] { moved.poll(); }), "[cohort] poll on a tensor channel: this end was closed, or moved away");
  EXPECT_TRUE(ends.second.poll());
}

// The end that is closed had something to receive, which the kernel reports as a reset.
TEST(TensorChannel, WhatWasSentBeforeACloseArrivesThoughTheOtherHadNotRead) {
  auto [a, b] = comm::TensorChannel::make_pair();
  acknowledge(a, 1);
  acknowledge(b, 2);
  b.close();
  EXPECT_EQ(acknowledgement(a), "2");
  EXPECT_EQ(error_of([&, &end = a] { end.receive(); }),
            "[cohort] receive on a tensor channel: the other end is closed, and all that it has sent was received");
}

TEST(TensorListener, NamesMessage) {
  const auto name = own_name("names");
  const comm::TensorListener first(name);
  EXPECT_EQ(error_of([&] { comm::TensorListener second(name); }),
            "[cohort] tensor channel \"" + name +
                "\" is listened on already, by this or another process of this user\n"
                "  hint: choose another name");
  EXPECT_EQ(error_of([] { comm::TensorListener none(""); }),
            "[cohort] the name of a tensor channel has 1 to 64 bytes, got 0");
  EXPECT_EQ(error_of([] { comm::TensorChannel::connect(std::string(65, 'x')); }),
            "[cohort] the name of a tensor channel has 1 to 64 bytes, got 65");
}

TEST(TensorListener, TimeOutsMessage) {
  const auto name = own_name("late");
  comm::TensorListener listener(name);
  EXPECT_EQ(error_of([&] { listener.accept(20ms); }),
            "[cohort] no process connected to tensor channel \"" + name + "\" within 20 ms");
  EXPECT_EQ(error_of([&] { comm::TensorChannel::connect(name + "-other", 20ms); }),
            "[cohort] no process listens on tensor channel \"" + name +
                "-other\" after 20 ms\n"
                "  hint: make a TensorListener of that name in the other process; both must be of one user and in one "
                "network namespace");
}

// The name is free again at once, however the listener ended.
COHORT_WORKER(channel_listener_killed) {
  const comm::TensorListener listener(test::worker_arguments().at(0));
  raise(SIGKILL);
}

TEST(TensorListener, ANameIsFreeAgainAfterKill9) {
  const auto name = own_name("killed");
  EXPECT_EQ(run_workers("channel_listener_killed", {.world_size = 1, .arguments = {name}})[0].exit_code, -SIGKILL);
  const comm::TensorListener again(name);
}

}  // namespace
}  // namespace cohort
