// Tensors that ranks of a host lend each other: whose memory it is, when it comes back, and steps that are made of it.
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
#include "cohort/parallel/pipeline/loans.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using pipeline::Loans;
using pipeline::LoanSlip;
using pipeline::TensorMeta;

constexpr int64_t kNumbers = 1 << 15;  // 128 KiB
const TensorMeta kMeta{at::kFloat, {kNumbers}, false};

void pass(const at::Tensor& slip) { broadcast(slip, 0); }

void require_all(const at::Tensor& tensor, double value, const std::string& what) {
  TORCH_CHECK(tensor.eq(value).all().item<bool>(), what, ": expected ", value, ", there is ",
              tensor.flatten()[0].item<double>());
}

// Rank 0 lends, and rank 1 borrows.
at::Tensor lend_and_borrow(Loans& loans, const at::Tensor& tensor, LoanSlip::Area area) {
  const bool lends = get_rank() == 0;
  const LoanSlip own = lends ? loans.lend(tensor, 1) : LoanSlip();
  TORCH_CHECK(!lends || own.area == area, "lent from area ", static_cast<int64_t>(own.area));
  const at::Tensor slip = own.tensor();
  pass(slip);
  return lends ? at::Tensor() : loans.borrow(LoanSlip::read(slip), kMeta, 0);
}

COHORT_WORKER(lends_its_own_memory) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  Loans loans({}, size_t{1} << 20);
  const bool lends = get_rank() == 0;
  at::Tensor alone = lends ? at::full({kNumbers}, 3.0) : at::Tensor();
  at::Tensor borrowed = lend_and_borrow(loans, alone, LoanSlip::Area::kArena);
  if (!lends) {
    require_all(borrowed, 3, "what is lent");
    borrowed.fill_(4);
  }
  barrier();
  if (lends) require_all(alone, 4, "the same memory");

  // A second handle, a view, every other number of one, memory that another tensor has: the lender may look at them again.
  const at::Tensor one = at::full({kNumbers}, 5.0), two = at::full({2, kNumbers}, 5.0), wide = two.t().contiguous();
  const auto blob = [&] {
    return at::from_blob(
        one.mutable_data_ptr(), {kNumbers}, [](void*) {}, at::kFloat);
  };
  for (const auto& make : std::vector<std::function<at::Tensor()>>{[&] { return one; }, [&] { return two[1]; },
                                                                   [&] { return wide.select(1, 0); }, blob}) {
    const at::Tensor known = make();
    at::Tensor copy = lend_and_borrow(loans, known, LoanSlip::Area::kCommon);
    if (!lends) {
      require_all(copy, 5, "what is copied");
      copy.fill_(6);
    }
    barrier();
    for (const auto& each : {one, two, wide}) require_all(each, 5, "the lender's tensor");
  }
  destroy_process_group();
}
TEST(Loans, AreTheMemoryItselfWhereNobodyElseHasIt) {
  test::run_workers("lends_its_own_memory", {.world_size = 2}).expect_success();
}

COHORT_WORKER(takes_back) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const bool lends = get_rank() == 0;
  Loans loans({}, size_t{1} << 20);
  for (const auto area : {LoanSlip::Area::kArena, LoanSlip::Area::kCommon}) {
    at::Tensor tensor = lends ? at::full({kNumbers}, 3.0) : at::Tensor();
    at::Tensor second = area == LoanSlip::Area::kCommon ? tensor : at::Tensor();
    at::Tensor borrowed = lend_and_borrow(loans, tensor, area);
    at::Tensor view = borrowed.defined() ? borrowed.view({2, -1}) : borrowed;
    const auto* const memory = lends ? tensor.const_data_ptr() : nullptr;
    tensor.reset();
    second.reset();
    borrowed.reset();
    barrier();
    loans.take_back();
    TORCH_CHECK(loans.num_lent() == (lends ? 1u : 0u), loans.num_lent(), " loans while there is a view");
    if (lends && area == LoanSlip::Area::kArena) {
      std::vector<at::Tensor> others;
      for (int i = 0; i < 8; ++i) others.push_back(at::full({kNumbers}, 9.0));
      for (const auto& each : others) TORCH_CHECK(each.const_data_ptr() != memory, "memory that is lent is used again");
    }
    barrier();
    if (!lends) require_all(view, 3, "a view");
    view.reset();
    barrier();
    loans.take_back();
    TORCH_CHECK(loans.num_lent() == 0, "what was returned is not taken back");
  }
  // 128 KiB of 1 MiB: what comes back can be lent again, and again.
  for (int i = 0; i < 300; ++i) {
    at::Tensor tensor = lends ? at::full({kNumbers}, 1.0 * i) : at::Tensor();
    const at::Tensor second = tensor;
    at::Tensor borrowed = lend_and_borrow(loans, tensor, LoanSlip::Area::kCommon);
    if (!lends) require_all(borrowed, i, "a later loan");
    borrowed.reset();
    barrier();
  }
  destroy_process_group();
}
TEST(Loans, ComeBackWithTheLastReference) { test::run_workers("takes_back", {.world_size = 2}).expect_success(); }

COHORT_WORKER(forks_with_a_loan) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const bool lends = get_rank() == 0;
  auto loans = std::make_unique<Loans>(Group(), size_t{1} << 20);
  at::Tensor borrowed =
      lend_and_borrow(*loans, lends ? at::full({kNumbers}, 3.0) : at::Tensor(), LoanSlip::Area::kArena);
  const pid_t child = fork();
  if (child == 0) {
    borrowed.reset();
    loans.reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  TORCH_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with ", status);
  barrier();
  loans->take_back();
  TORCH_CHECK(loans->num_lent() == (lends ? 1u : 0u), "a forked child has returned its parent's loan");
  barrier();
  destroy_process_group();
}
TEST(Loans, OfAParentAreNotReturnedByItsChild) {
  test::run_workers("forks_with_a_loan", {.world_size = 2}).expect_success();
}

COHORT_WORKER(outlives_loans) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const bool lends = get_rank() == 0;
  const auto used = shared_allocator_stats().used_bytes;
  at::Tensor borrowed;
  {
    Loans loans({}, 0);
    borrowed = lend_and_borrow(loans, lends ? at::full({kNumbers}, 3.0) : at::Tensor(), LoanSlip::Area::kArena);
    barrier();
  }
  if (lends) {
    TORCH_CHECK(shared_allocator_stats().used_bytes > used, "let go of what is still lent");
    for (int i = 0; i < 8; ++i) at::full({kNumbers}, 9.0);
  }
  barrier();
  if (!lends) require_all(borrowed, 3, "a loan after the lender's end");
  borrowed.reset();
  barrier();
  Loans({}, 0);
  if (lends) TORCH_CHECK(shared_allocator_stats().used_bytes == used, "what was returned late is kept for ever");
  destroy_process_group();
}
TEST(Loans, AreKeptUntilTheyAreReturned) { test::run_workers("outlives_loans", {.world_size = 2}).expect_success(); }

COHORT_WORKER(has_no_room) {
  init_process_group({.backend = "shm", .shared_allocator = true});
  const bool lends = get_rank() == 0;
  Loans loans({}, size_t{300} << 10);  // two of 128 KiB
  if (lends) {
    std::vector<at::Tensor> tensors(3, at::ones({kNumbers}));
    std::vector<LoanSlip::Area> areas;
    for (const auto& tensor : tensors) areas.push_back(loans.lend(tensor, 1).area);
    TORCH_CHECK(areas == (std::vector{LoanSlip::Area::kCommon, LoanSlip::Area::kCommon, LoanSlip::Area::kNone}));
    for (int i = 2; i < Loans::kNumSlots; ++i) {
      TORCH_CHECK(loans.lend(at::ones({kNumbers}), 1).area == LoanSlip::Area::kArena, "slot ", i);
    }
    TORCH_CHECK(loans.lend(at::ones({kNumbers}), 1).area == LoanSlip::Area::kNone, "there are more slots");
  }
  const auto refused = [&](LoanSlip slip) { return test::error_of([&] { loans.borrow(slip, kMeta, 0); }); };
  using Area = LoanSlip::Area;
  for (const LoanSlip& slip : std::vector<LoanSlip>{{static_cast<Area>(7), 0, 0},
                                                    {Area::kNone, 0, 0},
                                                    {Area::kCommon, 0, -1},
                                                    {Area::kCommon, 0, Loans::kNumSlots},
                                                    {Area::kCommon, 200 << 10, 0},
                                                    {Area::kCommon, -4096, 0},
                                                    {Area::kArena, int64_t{1} << 60, 0}}) {
    const std::string expected =
        c10::str("[cohort] pipeline: rank 0 of the group lends memory outside its own: 131072 bytes from ", slip.offset,
                 " on in area ", static_cast<int64_t>(slip.area), ", slot ", slip.slot);
    TORCH_CHECK(refused(slip) == expected, refused(slip), " instead of ", expected);
  }
  destroy_process_group();
}
TEST(Loans, WithoutRoomAndFromNowhere) { test::run_workers("has_no_room", {.world_size = 2}).expect_success(); }

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
      if (x.is_cpu() && x.nbytes() >= 65536) num_borrowed += x.storage().unsafeGetStorageImpl()->resizable() ? 0 : 1;
      if (keeps) kept.push_back(x.detach());
      if (changes_input) x.detach().mul_(0.5);
    }
    if (passes_on) return x;
    const at::Tensor y = index == 0 ? x.unsqueeze(1) * weight : x * weight;
    return index == num_stages - 1 ? y.sum(1, true) : y;
  }
  int index, num_stages, num_borrowed = 0;
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
  int num_borrowed() const {
    int sum = 0;
    for (const auto& each : own) sum += each->num_borrowed;
    return sum;
  }
  int num_stages;
  std::vector<Wide> own, reference;
  std::unique_ptr<PipelineSchedule> schedule;
  std::vector<int> here;
  bool has_first = false, has_last = false;
};

// argument 0: the schedule's name, 1: "shared" for the shared allocator.
COHORT_WORKER(steps_by_loans) {
  init_process_group({.backend = "shm", .shared_allocator = test::worker_arguments().at(1) == "shared"});
  WideRun run(test::worker_arguments().at(0));
  run.step(32);
  TORCH_CHECK(run.num_borrowed() == 0, "lent before ranks know how much");
  run.step(32);
  const int num_borrowed = run.num_borrowed();
  TORCH_CHECK(num_borrowed > 0 || run.has_first, "nothing is lent");
  run.step(256);  // more than there is room for: some is lent, and some is sent
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

TEST(Loans, TrainAsOneProcess) {
  for (const std::string name : {"1F1B", "ZBVZeroBubble", "InterleavedZeroBubble"}) {
    for (const std::string allocator : {"shared", "default"}) {
      test::run_workers("steps_by_loans", {.world_size = 2, .arguments = {name, allocator}}).expect_success();
    }
  }
}

}  // namespace
}  // namespace cohort
