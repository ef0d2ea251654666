#include "cohort/parallel/ddp/hooks/power_sgd_hook.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/hooks/orthogonalize.h"

namespace cohort::ddp {
namespace {

at::Tensor random_normal(at::IntArrayRef sizes, const at::Tensor& like, at::Generator& generator) {
  return at::randn(sizes, generator, like.options().device(at::kCPU));
}

void bmm_into(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  auto out = result;
  at::bmm_out(out, a, b);
}

}  // namespace

// One bucket in one step.
class PowerSGDStep {
 public:
  PowerSGDStep(PowerSGDState& state, GradBucket& bucket)
      : state_(state),
        options_(state.options_),
        bucket_(bucket),
        key_(static_cast<int64_t>(bucket.index())),
        group_(group_of_hook(options_.process_group)),
        input_(bucket.buffer()) {}

  at::Tensor run();

 private:
  // Gradients of one shape, or a single gradient, with their factors.
  struct Factored {
    std::vector<at::Tensor> originals;
    at::Tensor matrices;  // [gradients, rows, columns]
    at::Tensor p;
    at::Tensor q;
  };

  int64_t rank_of(const at::Tensor& matrix) const;
  bool should_compress(const at::Tensor& matrix);
  void divide_gradients();
  void group_by_shape(const std::vector<at::Tensor>& matrices);
  bool provide_memory();
  void view_memory();
  void begin_qs(bool is_new);
  void unpack_uncompressed();
  void decompress();

  PowerSGDState& state_;
  const PowerSGDOptions& options_;
  GradBucket& bucket_;
  const int64_t key_;
  const Group group_;
  const at::Tensor input_;
  at::Tensor input_before_;
  std::vector<at::Tensor> uncompressed_;
  at::Tensor uncompressed_memory_;
  std::vector<Factored> factored_;
};

at::Tensor PowerSGDStep::run() {
  if (options_.use_error_feedback) {
    if (const auto error = state_.errors_.find(key_); error != state_.errors_.end()) input_.add_(error->second);
    input_before_ = input_.clone();
  }
  divide_gradients();
  state_.report(bucket_);
  const bool is_new = provide_memory();
  view_memory();
  const auto uncompressed_work = all_reduce(uncompressed_memory_, {.group = group_, .async_op = true});
  begin_qs(is_new);
  for (const auto& part : factored_) bmm_into(part.p, part.matrices, part.q);
  uncompressed_work->wait();
  unpack_uncompressed();
  all_reduce(state_.ps_[key_], {.group = group_});
  for (const auto& part : factored_) {
    orthogonalize(part.p, options_.orthogonalization_epsilon);
    bmm_into(part.q, part.matrices.transpose(1, 2), part.p);
  }
  all_reduce(state_.qs_[key_], {.group = group_});
  state_.qs_[key_].div_(group_->getSize());
  decompress();
  if (options_.use_error_feedback) state_.errors_[key_] = input_before_ - input_;
  if (!options_.warm_start) {
    state_.ps_.clear();
    state_.qs_.clear();
  }
  state_.count(bucket_);
  return input_;
}

int64_t PowerSGDStep::rank_of(const at::Tensor& matrix) const {
  return std::min({matrix.size(-2), matrix.size(-1), options_.matrix_approximation_rank});
}

bool PowerSGDStep::should_compress(const at::Tensor& matrix) {
  const auto compressed = (matrix.size(0) + matrix.size(1)) * rank_of(matrix);
  const bool is_worth_it =
      static_cast<double>(compressed) * options_.min_compression_rate < static_cast<double>(matrix.numel());
  state_.num_before_compression_ += matrix.numel();
  state_.num_after_compression_ += is_worth_it ? compressed : matrix.numel();
  return is_worth_it;
}

void PowerSGDStep::divide_gradients() {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> flat;
  for (const auto& gradient : bucket_.gradients()) {
    const auto num_rows = gradient.dim() == 0 ? 1 : std::max<int64_t>(gradient.size(0), 1);
    const auto matrix = gradient.view({num_rows, gradient.numel() / num_rows});
    if (should_compress(matrix)) {
      matrices.push_back(matrix);
    } else {
      uncompressed_.push_back(gradient);
      flat.push_back(gradient.view(-1));
    }
  }
  uncompressed_memory_ = flat.empty() ? at::empty({0}, input_.options()) : at::cat(flat);
  group_by_shape(matrices);
}

// Keeps shapes in the order in which they first occur, as in Python.
void PowerSGDStep::group_by_shape(const std::vector<at::Tensor>& matrices) {
  std::vector<std::vector<at::Tensor>> shapes;
  for (const auto& matrix : matrices) {
    auto shape = std::find_if(shapes.begin(), shapes.end(),
                              [&](const auto& others) { return others.front().sizes() == matrix.sizes(); });
    if (shape == shapes.end()) shape = shapes.insert(shape, std::vector<at::Tensor>());
    shape->push_back(matrix);
  }
  for (auto& shape : shapes) {
    if (options_.batch_tensors_with_same_shape && shape.size() > 1) {
      factored_.push_back({shape, at::stack(shape), {}, {}});
    } else {
      for (const auto& matrix : shape) factored_.push_back({{matrix}, matrix.unsqueeze(0), {}, {}});
    }
  }
}

// Returns true if the memory of P and Q is new.
bool PowerSGDStep::provide_memory() {
  if (options_.warm_start && state_.ps_.contains(key_)) return false;
  int64_t size_of_ps = 0;
  int64_t size_of_qs = 0;
  for (const auto& part : factored_) {
    const auto columns = part.matrices.size(0) * rank_of(part.matrices);
    size_of_ps += part.matrices.size(1) * columns;
    size_of_qs += part.matrices.size(2) * columns;
  }
  state_.ps_[key_] = at::empty({size_of_ps}, input_.options());
  state_.qs_[key_] = at::empty({size_of_qs}, input_.options());
  return true;
}

void PowerSGDStep::view_memory() {
  int64_t p_offset = 0;
  int64_t q_offset = 0;
  const auto next = [](const at::Tensor& memory, int64_t& offset, int64_t count, int64_t rows, int64_t columns) {
    const auto view = memory.narrow(0, offset, count * rows * columns).view({count, rows, columns});
    offset += view.numel();
    return view;
  };
  for (auto& part : factored_) {
    const auto rank = rank_of(part.matrices);
    part.p = next(state_.ps_[key_], p_offset, part.matrices.size(0), part.matrices.size(1), rank);
    part.q = next(state_.qs_[key_], q_offset, part.matrices.size(0), part.matrices.size(2), rank);
  }
}

void PowerSGDStep::begin_qs(bool is_new) {
  at::Generator generator;
  if (is_new) generator = at::make_generator<at::CPUGeneratorImpl>(state_.draw_seed());
  for (const auto& part : factored_) {
    if (is_new) part.q.copy_(random_normal(part.q.sizes(), part.q, generator));
    orthogonalize(part.q, options_.orthogonalization_epsilon);
  }
}

void PowerSGDStep::unpack_uncompressed() {
  uncompressed_memory_.div_(group_->getSize());
  int64_t offset = 0;
  for (const auto& gradient : uncompressed_) {
    gradient.copy_(uncompressed_memory_.narrow(0, offset, gradient.numel()).view_as(gradient));
    offset += gradient.numel();
  }
}

void PowerSGDStep::decompress() {
  for (const auto& part : factored_) {
    bmm_into(part.matrices, part.p, part.q.transpose(1, 2));
    if (part.originals.size() == 1) continue;  // a view of the bucket
    for (size_t i = 0; i < part.originals.size(); ++i) {
      part.originals[i].copy_(part.matrices[static_cast<int64_t>(i)]);
    }
  }
}

// The bucket as one square matrix, padded with zeros.
class BatchedPowerSGDStep {
 public:
  BatchedPowerSGDStep(PowerSGDState& state, GradBucket& bucket)
      : state_(state),
        options_(state.options_),
        bucket_(bucket),
        key_(static_cast<int64_t>(bucket.index())),
        group_(group_of_hook(options_.process_group)) {}

  at::Tensor run() {
    const auto& input = bucket_.buffer();
    const auto side = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(input.numel()))));
    state_.num_before_compression_ += input.numel();
    state_.num_after_compression_ += side * options_.matrix_approximation_rank * 2;
    auto padded = at::zeros({side * side}, input.options());
    padded.narrow(0, 0, input.numel()).copy_(input);
    state_.report(bucket_);
    at::Tensor before;
    if (options_.use_error_feedback) {
      if (const auto error = state_.errors_.find(key_); error != state_.errors_.end()) padded.add_(error->second);
      before = padded.clone();
    }
    approximate(padded.view({side, side}));
    if (options_.use_error_feedback) state_.errors_[key_] = before - padded;
    if (!options_.warm_start) {
      state_.ps_.clear();
      state_.qs_.clear();
    }
    state_.count(bucket_);
    return padded.narrow(0, 0, input.numel());
  }

 private:
  void approximate(at::Tensor matrix) {
    if (!options_.warm_start || !state_.ps_.contains(key_)) provide_memory(matrix);
    auto& p = state_.ps_[key_];
    auto& q = state_.qs_[key_];
    orthogonalize(q.unsqueeze(0), 0);
    at::matmul_out(p, matrix, q);
    all_reduce(p, {.group = group_});
    orthogonalize(p.unsqueeze(0), 0);
    at::matmul_out(q, matrix.t(), p);
    all_reduce(q, {.group = group_});
    q.div_(group_->getSize());
    at::matmul_out(matrix, p, q.t());
  }

  void provide_memory(const at::Tensor& matrix) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(state_.draw_seed());
    const std::vector<int64_t> sizes{matrix.size(0), options_.matrix_approximation_rank};
    state_.ps_[key_] = at::empty(sizes, matrix.options());
    state_.qs_[key_] = random_normal(sizes, matrix, generator).to(matrix.device());
  }

  PowerSGDState& state_;
  const PowerSGDOptions& options_;
  GradBucket& bucket_;
  const int64_t key_;
  const Group group_;
};

CommHookFuture power_sgd_hook(const std::shared_ptr<PowerSGDState>& state, GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  if (!state->compresses()) {
    state->count(bucket);
    return all_reduce_average(state->options_.process_group, bucket.buffer());
  }
  return completed_future(PowerSGDStep(*state, bucket).run());
}

CommHookFuture batched_power_sgd_hook(const std::shared_ptr<PowerSGDState>& state, GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  if (!state->compresses()) {
    state->count(bucket);
    return all_reduce_average(state->options_.process_group, bucket.buffer());
  }
  return completed_future(BatchedPowerSGDStep(*state, bucket).run());
}

}  // namespace cohort::ddp
