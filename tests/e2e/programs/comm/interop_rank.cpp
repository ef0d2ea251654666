// interop_rank INIT_METHOD RESULT BACKEND: one rank of a job whose other ranks may be Python's. The same operations, in the
// same order, stand in interop_python_rank.py; interop_test.py knows what they must give.
#include <ATen/ATen.h>

#include <cstdlib>
#include <iostream>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/comm/collectives/coalescing.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/group/subgroups.h"

namespace {

using namespace cohort;

at::Tensor numbers(int64_t count, at::ScalarType dtype) { return at::arange(count).to(dtype) + 10 * get_rank(); }

void run_collectives(checkpoint::StateDict& results) {
  const int size = get_world_size();
  auto sum = numbers(6, at::kFloat);
  all_reduce(sum);
  auto maximum = numbers(1001, at::kLong);
  const auto work = all_reduce(maximum, {.op = ReduceOp::MAX, .async_op = true});
  work->wait();
  auto half = numbers(5, at::kBFloat16);
  all_reduce(half);
  results.insert("all_reduce.sum", sum);
  results.insert("all_reduce.max", maximum);
  results.insert("all_reduce.bfloat16", half);
  auto sent = numbers(7, at::kDouble);
  broadcast(sent, size - 1);
  results.insert("broadcast", sent);
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < size; ++rank) parts.push_back(at::zeros({3}));
  all_gather(parts, numbers(3, at::kFloat));
  results.insert("all_gather", at::stack(parts));
  auto joined = at::zeros({3 * size});
  all_gather_into_tensor(joined, numbers(3, at::kFloat));
  results.insert("all_gather_into_tensor", joined);
  auto part = at::zeros({4});
  reduce_scatter(part, numbers(4 * size, at::kFloat).chunk(size));
  results.insert("reduce_scatter", part);
  auto part_of_one = at::zeros({4});
  reduce_scatter_tensor(part_of_one, numbers(4 * size, at::kFloat));
  results.insert("reduce_scatter_tensor", part_of_one);
  barrier();
}

void run_point_to_point(checkpoint::StateDict& results) {
  const int rank = get_rank();
  const int size = get_world_size();
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  auto received = at::zeros({6});
  if (rank == 0) send(numbers(6, at::kFloat), next, {.tag = 5});
  recv(received, previous, {.tag = 5});
  if (rank > 0) send(numbers(6, at::kFloat), next, {.tag = 5});
  results.insert("recv", received);
  auto crossed = at::zeros({2}, at::kLong);
  const auto sending = isend(numbers(2, at::kLong), next);
  const auto receiving = irecv(crossed, previous);
  sending->wait();
  receiving->wait();
  results.insert("irecv", crossed);
  if (rank > 0) return send(numbers(1, at::kLong), 0, {.tag = 7});
  auto sources = at::zeros({size}, at::kLong);
  for (int i = 1; i < size; ++i) {
    auto value = at::zeros({1}, at::kLong);
    const int source = recv(value, std::nullopt, {.tag = 7});
    sources[source] = value[0];
  }
  results.insert("recv_any", sources);
}

void run_rooted(checkpoint::StateDict& results) {
  const int rank = get_rank();
  const int size = get_world_size();
  const int last = size - 1;
  auto product = numbers(4, at::kInt);
  reduce(product, last, {.op = ReduceOp::PRODUCT});
  if (rank == last) results.insert("reduce", product);
  TensorList lists;
  for (int r = 0; rank == last && r < size; ++r) lists.push_back(at::zeros({3}));
  gather(numbers(3, at::kFloat), lists, last);
  if (rank == last) results.insert("gather", at::stack(lists));
  auto scattered = at::zeros({2}, at::kDouble);
  scatter(scattered, rank == last ? numbers(2LL * size, at::kDouble).chunk(size) : TensorList{}, last);
  results.insert("scatter", scattered);
  auto exchanged = at::zeros({2LL * size});
  all_to_all_single(exchanged, numbers(2LL * size, at::kFloat));
  results.insert("all_to_all", exchanged);
  std::vector<int64_t> splits;
  int64_t rows = 0;
  for (int r = 0; r < size; ++r) rows += splits.emplace_back(rank + r);
  auto uneven = at::zeros({rows});
  all_to_all_single(uneven, numbers(rows, at::kFloat), splits, splits);
  results.insert("all_to_all.uneven", uneven);
  auto first = numbers(3, at::kFloat);
  auto second = numbers(5, at::kFloat);
  CoalescingManager together;
  all_reduce(first);
  all_reduce(second);
  together.finish();
  results.insert("coalesced.first", first);
  results.insert("coalesced.second", second);
  auto received = at::zeros({3});
  for (const auto& work : batch_isend_irecv({P2POp::isend(numbers(3, at::kFloat), (rank + 1) % size),
                                             P2POp::irecv(received, (rank + size - 1) % size)})) {
    work->wait();
  }
  results.insert("batch", received);
  if (get_backend() == "gloo") monitored_barrier();  // Python has it there only
}

// Before any other group: from then on Python's name for it differs between ranks that are in different groups.
void run_local_group(checkpoint::StateDict& results) {
  if (get_rank() > 1) return;
  const auto local = new_group({0, 1}, {.use_local_synchronization = true});
  auto sum = numbers(3, at::kFloat);
  all_reduce(sum, {.group = local});
  results.insert("local.all_reduce", sum);
}

void run_groups(checkpoint::StateDict& results) {
  const int last = get_world_size() - 1;
  const auto ends = new_group({0, last});
  const auto alone = new_group({last});
  const auto all = new_group();
  if (is_member(ends)) {
    auto sum = numbers(3, at::kFloat);
    all_reduce(sum, {.group = ends});
    results.insert("ends.all_reduce", sum);
    auto sent = numbers(3, at::kFloat);
    broadcast(sent, last, {.group = ends});
    results.insert("ends.broadcast", sent);
    barrier({.group = ends});
  }
  if (is_member(alone)) {
    auto sum = numbers(3, at::kFloat);
    all_reduce(sum, {.group = alone});
    results.insert("alone.all_reduce", sum);
  }
  auto sum = numbers(3, at::kFloat);
  all_reduce(sum, {.group = all});
  results.insert("all.all_reduce", sum);
  barrier({.group = all});
  if (get_world_size() % 2 != 0) return;
  auto pair_sum = numbers(3, at::kFloat);
  all_reduce(pair_sum, {.group = new_subgroups(2).first});
  results.insert("pair.all_reduce", pair_sum);
}

int number_from(const char* variable) { return std::stoi(std::getenv(variable)); }

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::cerr << "usage: interop_rank INIT_METHOD RESULT BACKEND\n";
    return 2;
  }
  const std::string method = argv[1];
  InitOptions options{.backend = argv[3], .init_method = method};
  if (method != "env://") {
    options.rank = number_from("RANK");
    options.world_size = number_from("WORLD_SIZE");
  }
  init_process_group(options);
  checkpoint::StateDict results;
  run_local_group(results);
  run_collectives(results);
  run_point_to_point(results);
  run_rooted(results);
  run_groups(results);
  checkpoint::save_file(results, argv[2]);
  destroy_process_group();
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
