// activation-checkpointing: a training step of a GPT in one process with one thread, plain, with each block checkpointed and
// under SaveOnCpu, beside Python's torch.utils.checkpoint and save_on_cpu; and the peak memory of forward and backward.
//
// Python's process has the same weights and data (activation_rank.py). In each round every side takes a step while the others
// sleep. The losses and gradients of all sides are compared before anything is timed. Memory is measured in a separate step, from
// what LibTorch's allocator reports to profilers: gradients exist already, so it is the memory of activations and of operators'
// temporaries.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/core.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/support/question.h"
#include "benchmarks/support/set_weights.h"
#include "benchmarks/support/team.h"
#include "benchmarks/support/turn_order.h"
#include "benchmarks/support/turns.h"
#include "build_facts.h"
#include "cohort/models/gpt.h"
#include "cohort/parallel/activation/checkpoint.h"
#include "cohort/parallel/activation/save_on_cpu.h"

namespace cohort::bench {
namespace {

constexpr int64_t kMostTokens = 256;
constexpr int64_t kVocabulary = 256;
constexpr const char* kPlain = "plain";
const std::vector<std::string> kActivationVariants{kPlain, "checkpoint", "save-on-cpu"};

// Counts the bytes that this thread allocates for tensors while it is the thread's reporter. Ignores frees of older tensors.
class ByteCount final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  double peak_mib() const { return static_cast<double>(peak_) / (1 << 20); }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

models::GPT make_gpt(const std::string& variant) {
  models::GPT gpt(models::GPTOptions{
      .block_size = kMostTokens, .vocab_size = kVocabulary, .n_layer = 8, .n_head = 8, .n_embd = 512});
  set_weights(*gpt);
  if (variant == "checkpoint") {
    gpt->transformer->run_block = [](torch::nn::AnyModule& block, const at::Tensor& x, int64_t) {
      return activation::checkpoint([&block](const at::Tensor& input) { return block.forward(input); }, x);
    };
  }
  return gpt;
}

class ActivationTraining {
 public:
  ActivationTraining(const std::string& variant, int64_t num_tokens)
      : gpt_(make_gpt(variant)), optimizer_(gpt_->parameters(), 1e-4), saves_on_cpu_(variant == "save-on-cpu") {
    torch::manual_seed(100);
    const auto tokens = at::randint(kVocabulary, {1, num_tokens + 1}, at::kLong);
    tokens_ = tokens.narrow(1, 0, num_tokens);
    next_ = tokens.narrow(1, 1, num_tokens).flatten();
  }

  double time_step() {
    const auto begin = std::chrono::steady_clock::now();
    optimizer_.zero_grad();
    pass();
    optimizer_.step();
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    return elapsed.count();
  }

  // Returns the first step's loss and the sums of its gradients.
  std::string verify() {
    optimizer_.zero_grad();
    const double loss = pass();
    double sum = 0, squares = 0;
    for (const auto& parameter : gpt_->parameters()) {
      sum += parameter.grad().sum(at::kDouble).item<double>();
      squares += parameter.grad().square().sum(at::kDouble).item<double>();
    }
    optimizer_.step();
    return fmt::format("{:.10g} {:.10g} {:.10g}", loss, sum, squares);
  }

  double peak_mib() {
    optimizer_.zero_grad(/*set_to_none=*/false);
    const auto count = std::make_shared<ByteCount>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, count);
    pass();
    return count->peak_mib();
  }

 private:
  double pass() {
    const auto loss = [&] {
      const auto forward = [&] {
        return torch::nn::functional::cross_entropy(gpt_->forward(tokens_).flatten(0, 1), next_);
      };
      if (!saves_on_cpu_) return forward();
      const SaveOnCpu offload;
      return forward();
    }();
    loss.backward();
    return loss.item<double>();
  }

  models::GPT gpt_;
  torch::optim::SGD optimizer_;
  bool saves_on_cpu_;
  at::Tensor tokens_;
  at::Tensor next_;
};

struct ActivationSide {
  std::function<std::string()> verify;
  std::function<double()> time_step;
  std::function<double()> peak_mib;
};

ActivationSide our_side(const std::string& variant, int64_t num_tokens) {
  const auto training = std::make_shared<ActivationTraining>(variant, num_tokens);
  return {[training] { return training->verify(); }, [training] { return training->time_step(); },
          [training] { return training->peak_mib(); }};
}

ActivationSide python_side(Team& python, const std::string& variant, int64_t num_tokens) {
  python.ask(fmt::format("copy {} {}", variant, num_tokens));
  python.ask(fmt::format("copy {}.memory {}", variant, num_tokens));
  return {[&python, variant] { return python.ask("verify " + variant).front(); },
          [&python, variant] { return python.ask_number("run " + variant + " 0 1"); },
          [&python, variant] { return python.ask_number("run " + variant + ".memory 0 1"); }};
}

Row memory_row(double ours, double rival) {
  Row row;
  row.ours = ours;
  row.rival = rival;
  row.ratio = rival / ours;
  return row;
}

}  // namespace

std::vector<Row> run_activation_checkpointing(const Settings& settings) {
  at::set_num_threads(1);
  const int64_t num_tokens = settings.is_quick ? 64 : kMostTokens;
  const ScratchFolder folder;
  std::unique_ptr<Team> python;
  if (const auto program = find_python(); !program.empty()) {
    const std::string script = std::string(kSourceDir) + "/benchmarks/activation/activation_rank.py";
    python = std::make_unique<Team>(
        TeamOptions{.name = "python",
                    .folder = folder.path(),
                    .num_ranks = 1,
                    .command = {program, script},
                    .environment = {{"KINETO_LOG_LEVEL", "6"}}});  // else each profile logs its beginning and end
  }
  // Our sides first, then Python's, in the same order.
  const size_t num_variants = kActivationVariants.size();
  std::vector<ActivationSide> sides;
  for (const auto& variant : kActivationVariants) sides.push_back(our_side(variant, num_tokens));
  for (size_t i = 0; python && i < num_variants; ++i) {
    sides.push_back(python_side(*python, kActivationVariants[i], num_tokens));
  }

  const auto expected = sides.front().verify();
  std::vector<std::function<double()>> steps;
  std::vector<double> memory;
  for (size_t i = 0; i < sides.size(); ++i) {
    const auto actual = i == 0 ? expected : sides[i].verify();
    if (!agree(actual, expected, 1e-5)) {
      throw std::runtime_error(fmt::format("loss and gradient sums are {} for {}{} and {} for {}", actual,
                                           i < num_variants ? "" : "Python's ", kActivationVariants[i % num_variants],
                                           expected, kPlain));
    }
    memory.push_back(sides[i].peak_mib());
    steps.push_back(sides[i].time_step);
  }
  const auto times = measure_in_turns(steps, settings.is_quick ? 2 : 30);

  std::vector<Row> rows;
  const auto add = [&](Row row, size_t side, const std::string& what, const std::string& unit, std::string rival) {
    row.case_name = fmt::format("gpt-8x512/tokens={}/{}{}", num_tokens, kActivationVariants[side], what);
    row.unit = unit;
    row.rival_name = std::move(rival);
    rows.push_back(std::move(row));
  };
  for (size_t i = 0; i < num_variants; ++i) {
    const size_t same_in_python = num_variants + i;
    if (i > 0) add(compare_times(times[i], times[0]), i, "", "ms", kPlain);
    if (i > 0) add(memory_row(memory[i], memory[0]), i, "/memory", "MiB", kPlain);
    if (python) {
      add(compare_times(times[i], times[same_in_python]), i, "", "ms", "python");
      add(memory_row(memory[i], memory[same_in_python]), i, "/memory", "MiB", "python");
      continue;
    }
    Row absent;
    absent.ours = median(times[i]);
    absent.note = "there is no Python with PyTorch in .venv";
    add(absent, i, "", "ms", "python");
  }
  return rows;
}

}  // namespace cohort::bench
