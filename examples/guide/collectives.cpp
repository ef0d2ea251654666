// The programs of docs/guide/collectives.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/comm/collectives/coalescing.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/comm/collectives/object_collectives.h>
#include <cohort/comm/collectives/point_to_point.h>
#include <cohort/comm/collectives/shm_empty.h>
#include <cohort/comm/group/device.h>
#include <cohort/comm/group/process_group.h>
#include <cohort/comm/group/subgroups.h>
#include <cohort/comm/registry/backend_registry.h>
#include <cohort/parallel/functional/functional.h>
#include <cohort/parallel/functional/functional_collectives.h>
#include <torch/types.h>

#include <cstdio>
#include <iostream>

#include "guide.h"

namespace guide {
namespace {

void start() {
  cohort::InitOptions options;
  options.timeout = std::chrono::minutes(5);
  cohort::init_process_group(options);
  std::printf("rank %d of %d, backend %s\n", cohort::get_rank(), cohort::get_world_size(),
              cohort::get_backend().c_str());
  cohort::destroy_process_group();
}

void reduce_tensors() {
  const int rank = cohort::get_rank();
  const at::Tensor sum = torch::full({4}, rank + 1.0);
  cohort::all_reduce(sum);                         // in place: the sum of all ranks' tensors, on every rank
  cohort::all_reduce(sum, cohort::ReduceOp::AVG);  // another operation
  cohort::broadcast(sum, /*src=*/0);               // rank 0's, on every rank
  cohort::reduce(sum, /*dst=*/0, {.op = cohort::ReduceOp::MAX});
  cohort::barrier();
  TORCH_CHECK(rank != 0 || sum.eq(3).all().item<bool>());
}

void gather_and_scatter() {
  const int rank = cohort::get_rank();
  const int world_size = cohort::get_world_size();
  const at::Tensor mine = torch::full({2}, rank);

  at::Tensor all = torch::empty({2 * world_size}, mine.dtype());
  cohort::all_gather_single(all, mine);  // all ranks' tensors, one after the other

  cohort::TensorList parts;
  for (int r = 0; r < world_size; ++r) parts.push_back(torch::empty({2}, mine.dtype()));
  cohort::all_gather(parts, mine);  // the same in a list; sizes may differ between ranks

  at::Tensor piece = torch::empty({2}, mine.dtype());
  cohort::reduce_scatter_single(piece, all);  // sums `all` over the ranks: rank r gets shard r
  TORCH_CHECK(parts[1].eq(1).all().item<bool>() && piece.eq(world_size * rank).all().item<bool>());

  cohort::gather(mine, rank == 0 ? parts : cohort::TensorList{}, /*dst=*/0);
  cohort::scatter(piece, rank == 0 ? parts : cohort::TensorList{}, /*src=*/0);
  TORCH_CHECK(piece.eq(rank).all().item<bool>());

  // Rank r sends r + 1 rows to each rank, and gets s + 1 from rank s.
  const at::Tensor rows = torch::full({(rank + 1) * world_size, 3}, rank);
  const std::vector<int64_t> sent(world_size, rank + 1);
  std::vector<int64_t> received;
  for (int r = 0; r < world_size; ++r) received.push_back(r + 1);
  at::Tensor got = torch::empty({world_size * (world_size + 1) / 2, 3}, rows.dtype());
  cohort::all_to_all_single(got, rows, /*output_split_sizes=*/received, /*input_split_sizes=*/sent);
  TORCH_CHECK(got[-1][0].item<int>() == world_size - 1);
}

void wait_later() {
  at::Tensor gradients = torch::ones({1024});
  const cohort::WorkPtr work = cohort::all_reduce(gradients, {.async_op = true});
  const at::Tensor other = torch::ones({64, 64}).mm(torch::ones({64, 64}));  // computes meanwhile
  work->wait();                                                              // only now read `gradients`
  TORCH_CHECK(gradients[0].item<float>() == cohort::get_world_size() && other.defined());
}

void many_at_once() {
  cohort::TensorList gradients = {torch::ones({3}), torch::ones({5, 2})};
  cohort::all_reduce_coalesced(gradients, {.op = cohort::ReduceOp::AVG});  // one operation, in place

  cohort::CoalescingManager together;
  for (const auto& tensor : gradients) cohort::all_reduce(tensor);  // kept
  together.finish();                                                // and run here, as one
  TORCH_CHECK(gradients[1][0][0].item<float>() == cohort::get_world_size());
}

void send_and_receive() {
  const int rank = cohort::get_rank();
  const int world_size = cohort::get_world_size();
  at::Tensor value = torch::full({1}, rank);
  if (rank == 0) {
    cohort::send(value, /*dst=*/1);
  } else if (rank == 1) {
    const int sender = cohort::recv(value);  // from any rank
    TORCH_CHECK(sender == 0);
  }

  // Every rank sends to its neighbor, all at once.
  at::Tensor from_left = torch::empty({1}, value.dtype());
  const int right = (rank + 1) % world_size, left = (rank + world_size - 1) % world_size;
  const auto works = cohort::batch_isend_irecv(
      {cohort::P2POp::isend(value, right), cohort::P2POp::irecv(from_left, left, {.tag = 0})});
  for (const auto& work : works) work->wait();
  TORCH_CHECK(from_left.item<int>() == 0);
}

void objects() {
  const int rank = cohort::get_rank();
  cohort::ObjectList settings(1);
  if (rank == 0) {
    c10::Dict<std::string, double> values;
    values.insert("lr", 0.1);
    settings[0] = values;
  }
  cohort::broadcast_object_list(settings, /*src=*/0);
  const double lr = settings[0].toGenericDict().at("lr").toDouble();

  cohort::BytesList hosts(cohort::get_world_size());
  cohort::all_gather_object(hosts, "what rank " + std::to_string(rank) + " has to say");
  TORCH_CHECK(lr == 0.1 && hosts[1] == "what rank 1 has to say");
}

void subgroups() {
  const int rank = cohort::get_rank();
  // Every rank of the job makes the same calls in the same order, members or not.
  const cohort::Group first = cohort::new_group({0}, {.timeout = std::chrono::minutes(1), .group_desc = "first"});
  const auto [pair, all_pairs] = cohort::new_subgroups(/*group_size=*/2);

  const at::Tensor tensor = torch::ones({1});
  cohort::all_reduce(tensor, {.group = pair});
  cohort::broadcast(tensor, cohort::group_rank(0), {.group = pair});  // the pair's first rank, with any global rank
  if (cohort::is_member(first)) {
    cohort::barrier({.group = first});
    cohort::destroy_process_group(first);
  }
  TORCH_CHECK(tensor.item<float>() == 2 && all_pairs.size() == 1 && rank == cohort::get_rank(pair));
}

void shared_tensors() {
  // Falls back to an ordinary tensor if the ranks share no memory.
  at::Tensor buffer =
      cohort::comm::has_shared_memory() ? cohort::comm::shm_empty({1 << 20}, torch::kFloat) : torch::empty(1 << 20);
  buffer.fill_(cohort::get_rank());
  cohort::all_reduce(buffer);
  TORCH_CHECK(buffer[7].item<float>() == 1);
}

void with_gradients() {
  at::Tensor x = torch::ones({2}, torch::requires_grad());
  const at::Tensor sum = cohort::nn::functional::all_reduce(x);
  sum.sum().backward();  // a collective, too: every rank calls it

  const at::Tensor later = cohort::functional::all_reduce(torch::ones({2}), cohort::ReduceOp::SUM);
  const at::Tensor ready = cohort::functional::wait_tensor(later);
  TORCH_CHECK(x.grad().defined() && ready[0].item<float>() == cohort::get_world_size());
}

void explain_an_error() {
  try {
    cohort::monitored_barrier({.timeout = std::chrono::seconds(30), .wait_all_ranks = true});
  } catch (const c10::DistBackendError& error) {
    std::cerr << error.what_without_backtrace() << "\n";  // which ranks are missing, and what they do
    throw;
  }
}

}  // namespace

void run_collectives() {
  start();
  cohort::init_process_group();
  reduce_tensors();
  gather_and_scatter();
  wait_later();
  many_at_once();
  send_and_receive();
  objects();
  subgroups();
  shared_tensors();
  with_gradients();
  explain_an_error();
  cohort::destroy_process_group();
}

}  // namespace guide
