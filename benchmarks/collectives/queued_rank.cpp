// A rank of `queued`. Commands: "copy OPERATION BYTES" chooses the operation; "run VARIANT WARM STEPS" answers with the
// milliseconds per step of kQueuedOperations operations. Variants: "queued" and "called", both also with "-load"; "load" makes no
// operation.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <sstream>

#include "benchmarks/collectives/queued.h"
#include "benchmarks/support/question.h"
#include "benchmarks/support/serve_commands.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/group/process_group.h"

namespace cohort::bench {
namespace {

// Milliseconds of work on one core.
constexpr int64_t kLoadWidth = 320;

class QueuedRank {
 public:
  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb, name;
    int64_t number = 0;
    int num_steps = 0;
    words >> verb >> name >> number >> num_steps;
    return verb == "copy" ? copy(name, number) : run(name, static_cast<int>(number), num_steps);
  }

 private:
  // Averages of equal numbers do not change them.
  std::string copy(const std::string& operation, int64_t num_bytes) {
    operation_ = operation;
    const auto part = at::full({num_bytes / 4}, 3.0f);
    const auto whole = at::full({num_bytes / 4 * get_world_size()}, 3.0f);
    parts_.clear();
    wholes_.clear();
    for (int i = 0; i < kQueuedOperations; ++i) {
      parts_.push_back(part.clone());
      wholes_.push_back(whole.clone());
    }
    step("queued");
    step("called");
    for (const auto& tensor : parts_) TORCH_CHECK(tensor.eq(3.0f).all().item<bool>(), operation, " is wrong");
    for (const auto& tensor : wholes_) TORCH_CHECK(tensor.eq(3.0f).all().item<bool>(), operation, " is wrong");
    return "ok";
  }

  std::string run(const std::string& variant, int num_warm, int num_steps) {
    barrier();
    for (int i = 0; i < num_warm; ++i) step(variant);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < num_steps; ++i) step(variant);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    return std::to_string(elapsed.count() / num_steps);
  }

  void step(const std::string& variant) {
    const bool is_queued = variant.rfind("queued", 0) == 0;
    const bool is_called = variant.rfind("called", 0) == 0;
    std::vector<WorkPtr> works;
    if (is_queued) works = queue_all();
    if (variant.find("load") != std::string::npos) result_ = load_.mm(load_);
    for (const auto& work : works) work->wait();
    if (is_called) call_all();
  }

  WorkPtr one(size_t i, bool async_op) {
    if (operation_ == "all_reduce") return all_reduce(parts_[i], {.op = ReduceOp::AVG, .async_op = async_op});
    if (operation_ == "all_gather_single") return all_gather_single(wholes_[i], parts_[i], {.async_op = async_op});
    return reduce_scatter_single(parts_[i], wholes_[i], {.op = ReduceOp::AVG, .async_op = async_op});
  }

  // Half of them send, half receive.
  std::vector<P2POp> messages() const {
    std::vector<P2POp> operations;
    for (size_t i = 0; i < kQueuedOperations; i += 2) {
      operations.push_back(P2POp::isend(parts_[i], 1 - get_rank()));
      operations.push_back(P2POp::irecv(parts_[i + 1], 1 - get_rank()));
    }
    return operations;
  }

  std::vector<WorkPtr> queue_all() {
    if (operation_ == "batch_isend_irecv") return batch_isend_irecv(messages());
    std::vector<WorkPtr> works;
    for (size_t i = 0; i < kQueuedOperations; ++i) works.push_back(one(i, true));
    return works;
  }

  void call_all() {
    for (size_t i = 0; operation_ != "batch_isend_irecv" && i < kQueuedOperations; ++i) one(i, false);
    if (operation_ != "batch_isend_irecv") return;
    const bool sends_first = get_rank() == 0;
    for (size_t i = 0; i < kQueuedOperations; i += 2) {
      if (sends_first) send(parts_[i], 1 - get_rank());
      recv(parts_[i + 1], RankArgument(1 - get_rank()));
      if (!sends_first) send(parts_[i], 1 - get_rank());
    }
  }

  std::string operation_;
  std::vector<at::Tensor> parts_, wholes_;
  const at::Tensor load_ = at::full({kLoadWidth, kLoadWidth}, 1e-3f);
  at::Tensor result_;
};

}  // namespace

int run_queued_rank(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  InitOptions options;
  options.backend = arguments.at(0);
  options.init_method = arguments.at(3);
  options.rank = std::stoi(arguments.at(1));
  options.world_size = 2;
  init_process_group(options);
  {
    QueuedRank rank;
    serve_commands(arguments.at(2), [&](const std::string& command) { return rank.answer(command); });
  }
  destroy_process_group();
  return 0;
}

}  // namespace cohort::bench
