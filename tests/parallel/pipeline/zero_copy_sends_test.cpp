// Zero-copy sends: whose memory a tensor has, when the memory comes back, and whole steps with such sends.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/memory/shared_allocator.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/parallel/pipeline/transfer/zero_copy_sends.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using pipeline::TensorLocation;
using pipeline::TensorMeta;
using pipeline::ZeroCopySends;

constexpr int64_t kNumbers = 1 << 15;  // 128 KiB
const TensorMeta kMeta{at::kFloat, {kNumbers}, false};

void pass(const at::Tensor& location) { broadcast(location, 0); }

void require_all(const at::Tensor& tensor, double value, const std::string& what) {
  TORCH_CHECK(tensor.eq(value).all().item<bool>(), what, ": expected ", value, ", there is ",
              tensor.flatten()[0].item<double>());
}

// Rank 0 sends, and rank 1 receives.
at::Tensor send_and_receive(ZeroCopySends& zero_copy, const at::Tensor& tensor, TensorLocation::Area area) {
  const bool sends = get_rank() == 0;
  const TensorLocation own = sends ? zero_copy.send(tensor, 1) : TensorLocation();
  TORCH_CHECK(!sends || own.area == area, "sent from area ", static_cast<int64_t>(own.area));
  const at::Tensor location = own.tensor();
  pass(location);
  return sends ? at::Tensor() : zero_copy.receive(TensorLocation::read(location), kMeta, 0);
}

COHORT_WORKER(sends_its_own_memory) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  ZeroCopySends zero_copy({}, size_t{1} << 20);
  const bool sends = get_rank() == 0;
  at::Tensor alone = sends ? at::full({kNumbers}, 3.0) : at::Tensor();
  at::Tensor received = send_and_receive(zero_copy, alone, TensorLocation::Area::kArena);
  if (!sends) {
    require_all(received, 3, "what is sent");
    received.fill_(4);
  }
  barrier();
  if (sends) require_all(alone, 4, "the same memory");

  // A second handle, a view, every other number of one, memory that another tensor has: the sender may look at them again.
  const at::Tensor one = at::full({kNumbers}, 5.0), two = at::full({2, kNumbers}, 5.0), wide = two.t().contiguous();
  const auto blob = [&] {
    return at::from_blob(
        one.mutable_data_ptr(), {kNumbers}, [](void*) {}, at::kFloat);
  };
  for (const auto& make : std::vector<std::function<at::Tensor()>>{[&] { return one; }, [&] { return two[1]; },
                                                                   [&] { return wide.select(1, 0); }, blob}) {
    const at::Tensor known = make();
    at::Tensor copy = send_and_receive(zero_copy, known, TensorLocation::Area::kCommon);
    if (!sends) {
      require_all(copy, 5, "what is copied");
      copy.fill_(6);
    }
    barrier();
    for (const auto& each : {one, two, wide}) require_all(each, 5, "the sender's tensor");
  }
  destroy_process_group();
}
TEST(ZeroCopySends, AreTheMemoryItselfWhereNobodyElseHasIt) {
  test::run_workers("sends_its_own_memory", {.world_size = 2}).expect_success();
}

COHORT_WORKER(takes_back) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const bool sends = get_rank() == 0;
  ZeroCopySends zero_copy({}, size_t{1} << 20);
  for (const auto area : {TensorLocation::Area::kArena, TensorLocation::Area::kCommon}) {
    at::Tensor tensor = sends ? at::full({kNumbers}, 3.0) : at::Tensor();
    at::Tensor second = area == TensorLocation::Area::kCommon ? tensor : at::Tensor();
    at::Tensor received = send_and_receive(zero_copy, tensor, area);
    at::Tensor view = received.defined() ? received.view({2, -1}) : received;
    const auto* const memory = sends ? tensor.const_data_ptr() : nullptr;
    tensor.reset();
    second.reset();
    received.reset();
    barrier();
    zero_copy.take_back();
    TORCH_CHECK(zero_copy.num_pending() == (sends ? 1u : 0u), zero_copy.num_pending(), " sends while there is a view");
    if (sends && area == TensorLocation::Area::kArena) {
      std::vector<at::Tensor> others;
      for (int i = 0; i < 8; ++i) others.push_back(at::full({kNumbers}, 9.0));
      for (const auto& each : others)
        TORCH_CHECK(each.const_data_ptr() != memory, "memory that the receiver has is used again");
    }
    barrier();
    if (!sends) require_all(view, 3, "a view");
    view.reset();
    barrier();
    zero_copy.take_back();
    TORCH_CHECK(zero_copy.num_pending() == 0, "what was returned is not taken back");
  }
  // 128 KiB of 1 MiB: what comes back can be sent again, and again.
  for (int i = 0; i < 300; ++i) {
    at::Tensor tensor = sends ? at::full({kNumbers}, 1.0 * i) : at::Tensor();
    const at::Tensor second = tensor;
    at::Tensor received = send_and_receive(zero_copy, tensor, TensorLocation::Area::kCommon);
    if (!sends) require_all(received, i, "a later send");
    received.reset();
    barrier();
  }
  destroy_process_group();
}
TEST(ZeroCopySends, ComeBackWithTheLastReference) {
  test::run_workers("takes_back", {.world_size = 2}).expect_success();
}

COHORT_WORKER(forks_during_a_send) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const bool sends = get_rank() == 0;
  auto zero_copy = std::make_unique<ZeroCopySends>(Group(), size_t{1} << 20);
  at::Tensor received =
      send_and_receive(*zero_copy, sends ? at::full({kNumbers}, 3.0) : at::Tensor(), TensorLocation::Area::kArena);
  const pid_t child = fork();
  if (child == 0) {
    received.reset();
    zero_copy.reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  TORCH_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with ", status);
  barrier();
  zero_copy->take_back();
  TORCH_CHECK(zero_copy->num_pending() == (sends ? 1u : 0u), "a forked child has returned its parent's tensor");
  barrier();
  destroy_process_group();
}
TEST(ZeroCopySends, OfAParentAreNotReturnedByItsChild) {
  test::run_workers("forks_during_a_send", {.world_size = 2}).expect_success();
}

COHORT_WORKER(outlives_sends) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const bool sends = get_rank() == 0;
  const auto used = comm::shared_allocator_stats().used_bytes;
  at::Tensor received;
  {
    ZeroCopySends zero_copy({}, 0);
    received =
        send_and_receive(zero_copy, sends ? at::full({kNumbers}, 3.0) : at::Tensor(), TensorLocation::Area::kArena);
    barrier();
  }
  if (sends) {
    TORCH_CHECK(comm::shared_allocator_stats().used_bytes > used, "let go of what is still in use");
    for (int i = 0; i < 8; ++i) at::full({kNumbers}, 9.0);
  }
  barrier();
  if (!sends) require_all(received, 3, "a tensor after the sender's end");
  received.reset();
  barrier();
  ZeroCopySends({}, 0);
  if (sends) TORCH_CHECK(comm::shared_allocator_stats().used_bytes == used, "what was returned late is kept for ever");
  destroy_process_group();
}
TEST(ZeroCopySends, AreKeptUntilTheyAreReturned) {
  test::run_workers("outlives_sends", {.world_size = 2}).expect_success();
}

COHORT_WORKER(has_no_room) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const bool sends = get_rank() == 0;
  ZeroCopySends zero_copy({}, size_t{300} << 10);  // two of 128 KiB
  if (sends) {
    std::vector<at::Tensor> tensors(3, at::ones({kNumbers}));
    std::vector<TensorLocation::Area> areas;
    for (const auto& tensor : tensors) areas.push_back(zero_copy.send(tensor, 1).area);
    TORCH_CHECK(areas == (std::vector{TensorLocation::Area::kCommon, TensorLocation::Area::kCommon,
                                      TensorLocation::Area::kNone}));
    for (int i = 2; i < ZeroCopySends::kNumSlots; ++i) {
      TORCH_CHECK(zero_copy.send(at::ones({kNumbers}), 1).area == TensorLocation::Area::kArena, "slot ", i);
    }
    TORCH_CHECK(zero_copy.send(at::ones({kNumbers}), 1).area == TensorLocation::Area::kNone, "there are more slots");
  }
  const auto refused = [&](TensorLocation location) {
    return test::error_of([&] { zero_copy.receive(location, kMeta, 0); });
  };
  using Area = TensorLocation::Area;
  for (const TensorLocation& location : std::vector<TensorLocation>{{static_cast<Area>(7), 0, 0},
                                                                    {Area::kNone, 0, 0},
                                                                    {Area::kCommon, 0, -1},
                                                                    {Area::kCommon, 0, ZeroCopySends::kNumSlots},
                                                                    {Area::kCommon, 200 << 10, 0},
                                                                    {Area::kCommon, -4096, 0},
                                                                    {Area::kArena, int64_t{1} << 60, 0}}) {
    const std::string expected =
        c10::str("[cohort] pipeline: rank 0 of the group sends a tensor outside its own memory: 131072 bytes from ",
                 location.offset, " on in area ", static_cast<int64_t>(location.area), ", slot ", location.slot);
    TORCH_CHECK(refused(location) == expected, refused(location), " instead of ", expected);
  }
  destroy_process_group();
}
TEST(ZeroCopySends, WithoutRoomAndFromNowhere) { test::run_workers("has_no_room", {.world_size = 2}).expect_success(); }

// ---- whole steps

constexpr int64_t kWidth = 4096;

// Of 8 rows 128 KiB leave the first stage.
struct WideImpl : torch::nn::Module {
  WideImpl(int index, int num_stages)
      : index(index),
        num_stages(num_stages),
        weight(register_parameter("weight", at::linspace(0.5, 1.5, kWidth).roll(index))) {}
  at::Tensor forward(const at::Tensor& x) {
    if (index > 0) {
      if (x.is_cpu() && x.nbytes() >= 65536) num_received += x.storage().unsafeGetStorageImpl()->resizable() ? 0 : 1;
      if (keeps) kept.push_back(x.detach());
      if (changes_input) x.detach().mul_(0.5);
    }
    if (passes_on) return x;
    const at::Tensor y = index == 0 ? x.unsqueeze(1) * weight : x * weight;
    return index == num_stages - 1 ? y.sum(1, true) : y;
  }
  int index, num_stages, num_received = 0;
  bool keeps = false, changes_input = false, passes_on = false;
  std::vector<at::Tensor> kept;
  at::Tensor weight;
};
TORCH_MODULE(Wide);

struct WideRun {
  explicit WideRun(const std::string& name) : num_stages(name == "1F1B" ? 2 : 4) {
    const int rank = get_rank();
    std::vector<int> indices = {rank};
    if (num_stages == 4) indices.push_back(name == "ZBVZeroBubble" ? 3 - rank : rank + 2);
    for (int i = 0; i < num_stages; ++i) {
      own.emplace_back(i, num_stages);
      reference.emplace_back(i, num_stages);
    }
    std::vector<PipelineStage> stages;
    for (const int index : indices) stages.emplace_back(own[static_cast<size_t>(index)], index, num_stages);
    schedule = std::make_unique<PipelineSchedule>(
        name, stages, 4,
        PipelineOptions{.loss_fn = loss_of([](auto& y, auto& t) { return at::mse_loss(y, t); }),
                        .dynamic_shapes = true});
    here = indices;
    has_first = rank == 0;
    has_last = indices.back() == num_stages - 1;
  }
  // A step of so many rows, and the same by one process: gradients are equal.
  void step(int64_t num_rows) {
    const at::Tensor x = at::linspace(-1, 1, num_rows), target = at::linspace(0, 2, num_rows).unsqueeze(1);
    for (auto* modules : {&own, &reference}) {
      for (auto& each : *modules) each->weight.mutable_grad().reset();
    }
    schedule->step(has_first ? TensorList{x} : TensorList(), {.target = target});
    for (size_t i = 0; i < 4; ++i) {
      at::Tensor y = x.chunk(4)[i];
      for (auto& each : reference) y = each(y);
      (at::mse_loss(y, target.chunk(4)[i]) / 4).backward();
    }
    for (const int index : here) {
      const auto i = static_cast<size_t>(index);
      TORCH_CHECK(at::allclose(own[i]->weight.grad(), reference[i]->weight.grad(), 1e-5, 1e-6), "stage ", index);
    }
  }
  int num_received() const {
    int sum = 0;
    for (const auto& each : own) sum += each->num_received;
    return sum;
  }
  int num_stages;
  std::vector<Wide> own, reference;
  std::unique_ptr<PipelineSchedule> schedule;
  std::vector<int> here;
  bool has_first = false, has_last = false;
};

// argument 0: the schedule's name, 1: "shared" for the shared allocator.
COHORT_WORKER(steps_by_zero_copy) {
  init_process_group({.backend = "shm", .shared_allocator = test::worker_arguments().at(1) == "shared"});
  WideRun run(test::worker_arguments().at(0));
  run.step(32);
  TORCH_CHECK(run.num_received() == 0, "sent without a copy before ranks know how much");
  run.step(32);
  const int num_received = run.num_received();
  TORCH_CHECK(num_received > 0 || run.has_first, "nothing is sent without a copy");
  run.step(256);  // more than there is space for: some is copied
  run.step(256);
  run.step(32);

  // What a stage has kept does not change, whatever the others do next; and it has its input to itself.
  for (auto& each : run.own) each->keeps = true;
  run.step(32);
  std::vector<std::vector<at::Tensor>> copies;
  for (auto& each : run.own) {
    copies.emplace_back();
    for (const auto& kept : each->kept) copies.back().push_back(kept.clone());
    each->keeps = false;
  }
  for (int i = 0; i < 3; ++i) run.step(32);
  for (size_t i = 0; i < run.own.size(); ++i) {
    for (size_t j = 0; j < copies[i].size(); ++j) {
      TORCH_CHECK(at::equal(copies[i][j], run.own[i]->kept[j]), "what stage ", i, " has kept");
    }
  }
  for (auto& each : run.own) {
    each->changes_input = true;
    each->passes_on = each->index == 0;
  }
  const at::Tensor batch = at::ones({32, kWidth}), before = batch.clone();
  run.schedule->eval(run.has_first ? TensorList{batch} : TensorList());
  TORCH_CHECK(at::equal(batch, before), "a stage has changed the first one's input");
  destroy_process_group();
}

TEST(ZeroCopySends, TrainAsOneProcess) {
  for (const std::string name : {"1F1B", "ZBVZeroBubble", "InterleavedZeroBubble"}) {
    for (const std::string allocator : {"shared", "default"}) {
      test::run_workers("steps_by_zero_copy", {.world_size = 2, .arguments = {name, allocator}}).expect_success();
    }
  }
}

}  // namespace
}  // namespace cohort
