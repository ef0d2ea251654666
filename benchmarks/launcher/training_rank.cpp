// A rank of `recovery` that trains a GPT of 25 M parameters: in the first attempt rank 1 is killed (SIGKILL, as with `kill -9`)
// after its sixth step, in the second both make one more step. Arguments: the file for times, the way to keep states ("memory",
// "overlap", "disk", or "copy": only copies a rank's state once in its own memory), the checkpoint's path, and steps between
// checkpoints.
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/checkpoint/recovery/memory_snapshot.h>
#include <cohort/checkpoint/recovery/skip_init.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/models/gpt.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <csignal>
#include <filesystem>

#include "benchmarks/launcher/crash_times.h"

namespace {

namespace checkpoint = cohort::checkpoint;
using namespace cohort::bench;

constexpr int64_t kKilledAfter = 6;
// Small, so that the step itself takes little time.
constexpr int64_t kContext = 64;

class Training {
 public:
  explicit Training(bool restores) {
    torch::manual_seed(1);
    std::optional<checkpoint::SkipInit> skip;
    if (restores) skip.emplace();
    net_ = cohort::models::GPT(
        cohort::models::GPTOptions{.block_size = kContext, .n_layer = 8, .n_head = 8, .n_embd = 512});
    skip.reset();
    // Restored values are equal on all ranks.
    model_ = cohort::DistributedDataParallel<cohort::models::GPTImpl>(net_, {.init_sync = !restores});
    optimizer_ = std::make_unique<cohort::optim::AdamW>(net_->parameters(), torch::optim::AdamWOptions(1e-4));
    tokens_ = torch::arange(kContext + 1).remainder(256).unsqueeze(0);
  }

  void run_step(const std::function<void()>& before_update) {
    optimizer_->zero_grad();
    const auto logits = model_(tokens_.slice(1, 0, kContext));
    torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens_.slice(1, 1).flatten()).backward();
    before_update();
    optimizer_->step();
  }

  /// Copies into the same memory each time.
  void copy() {
    size_t place = 0;
    for (const auto& item : state().get()) {
      if (!item.value().is_tensor()) continue;
      if (place == copies_.size()) copies_.push_back(at::empty_like(item.value().tensor));
      const at::NoGradGuard no_grad;
      copies_[place++].copy_(item.value().tensor);
    }
  }

  checkpoint::SnapshotState state() { return checkpoint::snapshot_state(*net_, *optimizer_); }
  void save(const std::string& path, int64_t step) const {
    checkpoint::save_checkpoint(*net_, optimizer_.get(), path, {.step = step});
  }
  std::optional<int64_t> load(const std::string& path) {
    if (!std::filesystem::exists(path)) return std::nullopt;
    return checkpoint::load_checkpoint(*net_, optimizer_.get(), path).step;
  }

 private:
  cohort::models::GPT net_ = nullptr;
  cohort::DistributedDataParallel<cohort::models::GPTImpl> model_ = nullptr;
  std::unique_ptr<cohort::optim::AdamW> optimizer_;
  at::Tensor tokens_;
  std::vector<at::Tensor> copies_;
};

}  // namespace

int main(int, char** argv) {
  const char* const times = argv[1];
  const std::string kept = argv[2];
  const std::string path = argv[3];
  const int64_t every = std::atoll(argv[4]);
  const bool is_second = !is_first_attempt();
  if (is_second) write_time(times, "main");
  cohort::init_process_group();
  if (is_second) write_time(times, "init");
  Training training(/*restores=*/is_second && kept != "copy");
  if (is_second) write_time(times, "model");
  const bool is_in_memory = kept == "memory" || kept == "overlap";
  std::optional<checkpoint::MemorySnapshot> snapshot;
  int64_t step = 0;
  if (is_in_memory) {
    snapshot.emplace(training.state(), checkpoint::MemorySnapshotOptions{
                                           .every_steps = every, .overlap = kept == "overlap", .required = true});
    step = snapshot->resume().step;
  } else if (kept == "disk") {
    step = training.load(path).value_or(0);
  }
  if (is_second) write_time(times, "resumed");
  for (;;) {
    training.run_step([&] {
      if (snapshot) snapshot->before_step();
    });
    ++step;
    if (is_second) {
      write_time(times, "done");
      break;
    }
    if (is_rank("0")) write_time(times, "begins-to-keep");
    if (snapshot) snapshot->step(step);
    if (kept == "copy") training.copy();
    if (kept == "disk" && step % every == 0 && is_rank("0")) training.save(path, step);
    if (is_rank("0")) write_time(times, "kept");
    if (step == kKilledAfter && is_rank("1")) {
      write_time(times, "crash");
      ::raise(SIGKILL);
    }
  }
  snapshot.reset();
  cohort::destroy_process_group();
}
