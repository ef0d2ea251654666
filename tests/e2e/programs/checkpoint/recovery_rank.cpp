// A rank of tests/e2e/checkpoint/recovery_test.py: trains a small model, keeps memory snapshots, and dies where it is told to.
//
//   recovery_rank FOLDER ddp|ddp-unused|fsdp|zero STEPS [gloo] [every=N] [overlap] [required] [disk=N] [pause=MILLISECONDS]
//                 [hold=STEP] [extra=MEGABYTES] [die=RANK:STEP:WHERE,...]
//
// WHERE: in the "step", when its state is asked for ("get"), in the "copy", when it is "kept", or in the "resume" (STEP is 0).
// What stands between commas is for one attempt each; + joins deaths of one attempt. hold: from that step on, each waits until
// FOLDER has a file "go". extra: so much more is to be kept. FOLDER gets, by rank, resumed.R (a line for each start), loss.R
// (step and loss in hexadecimal, each time) and final.R (a checksum of all that was trained). disk=N: files every N steps, which
// rank 0 writes.
#include <cohort/checkpoint/checkpointer/training_checkpoint.h>
#include <cohort/checkpoint/recovery/memory_snapshot.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/fsdp/full_tensor.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <cohort/parallel/zero/zero_redundancy_optimizer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

namespace {

namespace checkpoint = cohort::checkpoint;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(64, 1024));
    norm = register_module("norm", torch::nn::BatchNorm1d(1024));
    dropout = register_module("dropout", torch::nn::Dropout(0.25));
    second = register_module("second", torch::nn::Linear(1024, 512));
    third = register_module("third", torch::nn::Linear(512, 16));
  }
  at::Tensor forward(const at::Tensor& x) { return third(second(dropout(norm(first(x)).relu())).relu()); }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Net);

std::map<std::string, std::string> options_of(int count, char** words) {
  std::map<std::string, std::string> options;
  for (int i = 4; i < count; ++i) {
    const std::string word = words[i];
    options[word.substr(0, word.find('='))] =
        word.find('=') == std::string::npos ? "1" : word.substr(word.find('=') + 1);
  }
  return options;
}

int64_t number_in(const std::map<std::string, std::string>& options, const char* name, int64_t otherwise) {
  const auto found = options.find(name);
  return found == options.end() ? otherwise : std::atoll(found->second.c_str());
}

void wait_for_file(const std::string& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// When and where this rank dies, in this attempt.
class Deaths {
 public:
  explicit Deaths(const std::string& text) {
    std::istringstream attempts(text);
    std::string own;
    for (int attempt = std::atoi(std::getenv("TORCHELASTIC_RESTART_COUNT")); attempt >= 0; --attempt) {
      own.clear();
      std::getline(attempts, own, ',');
    }
    std::istringstream items(own);
    for (std::string item; std::getline(items, item, '+');) {
      int rank = 0;
      char colon = 0;
      Death death;
      std::istringstream(item) >> rank >> colon >> death.step >> colon >> death.where;
      if (rank == cohort::get_rank()) deaths_.push_back(death);
    }
  }
  void here(const std::string& where, int64_t step) const {
    if (is_due(where, step)) ::raise(SIGKILL);
  }
  /// In a moment; the rank goes no further than wait().
  void soon(const std::string& where, int64_t step) const {
    if (!is_due(where, step)) return;
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      ::raise(SIGKILL);
    }).detach();
  }
  void wait(const std::string& where, int64_t step) const {
    while (is_due(where, step)) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

 private:
  struct Death {
    int64_t step = -1;
    std::string where;
  };
  bool is_due(const std::string& where, int64_t step) const {
    return std::any_of(deaths_.begin(), deaths_.end(),
                       [&](const Death& death) { return death.where == where && death.step == step; });
  }
  std::vector<Death> deaths_;
};

class Training {
 public:
  virtual ~Training() = default;
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  virtual torch::nn::Module& module() = 0;
  virtual torch::optim::Optimizer& optimizer() = 0;
};

class Replicated final : public Training {
 public:
  explicit Replicated(bool finds_unused) : model_(net_, {.find_unused_parameters = finds_unused}) {}
  at::Tensor forward(const at::Tensor& x) override { return model_(x); }
  torch::nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return optimizer_; }

 private:
  Net net_;
  cohort::DistributedDataParallel<NetImpl> model_;
  torch::optim::AdamW optimizer_{net_->parameters(), torch::optim::AdamWOptions(1e-3)};
};

/// The optimizer's state is divided among the ranks.
class Divided final : public Training {
 public:
  at::Tensor forward(const at::Tensor& x) override { return model_(x); }
  torch::nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return optimizer_; }

 private:
  Net net_;
  cohort::DistributedDataParallel<NetImpl> model_{net_};
  cohort::ZeroRedundancyOptimizer optimizer_ =
      cohort::ZeroRedundancyOptimizer::make<torch::optim::AdamW>(net_->parameters(), torch::optim::AdamWOptions(1e-3));
};

class Sharded final : public Training {
 public:
  at::Tensor forward(const at::Tensor& x) override { return model_(x); }
  torch::nn::Module& module() override { return *model_; }
  torch::optim::Optimizer& optimizer() override { return optimizer_; }

 private:
  cohort::FullySharded<NetImpl> model_ = cohort::fully_shard(Net());
  torch::optim::AdamW optimizer_{model_->parameters(), torch::optim::AdamWOptions(1e-3)};
};

std::unique_ptr<Training> make_training(const std::string& strategy) {
  if (strategy == "fsdp") return std::make_unique<Sharded>();
  if (strategy == "zero") return std::make_unique<Divided>();
  return std::make_unique<Replicated>(strategy == "ddp-unused");
}

void append(const std::string& path, const std::string& line) { std::ofstream(path, std::ios::app) << line << "\n"; }

void append_loss(const std::string& path, int64_t step, double loss) {
  char line[64];
  std::snprintf(line, sizeof line, "%lld %a", static_cast<long long>(step), loss);
  append(path, line);
}

uint64_t checksum(const checkpoint::ShardedStateDict& state) {
  uint64_t sum = 14695981039346656037u;
  for (const auto& item : state) {
    if (!item.value().is_tensor()) continue;
    const at::Tensor dense = item.value().tensor.cpu().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(dense.const_data_ptr());
    for (size_t i = 0; i < dense.nbytes(); ++i) sum = (sum ^ bytes[i]) * 1099511628211u;
  }
  return sum;
}

int run(int count, char** words) {
  const std::string folder = words[1];
  const int64_t num_steps = std::atoll(words[3]);
  auto options = options_of(count, words);
  cohort::init_process_group(options.contains("gloo") ? "gloo" : "shm");
  const std::string rank = std::to_string(cohort::get_rank());
  const Deaths death(options["die"]);
  torch::manual_seed(7);
  const std::unique_ptr<Training> training = make_training(words[2]);
  torch::manual_seed(100 + cohort::get_rank());

  int64_t step = 0;
  at::Tensor extra;
  checkpoint::SnapshotState state = checkpoint::snapshot_state(training->module(), training->optimizer());
  const auto get = state.get;
  state.get = [&] {
    death.here("get", step);
    death.soon("copy", step);
    checkpoint::ShardedStateDict values = get();
    if (extra.defined()) values.insert("extra", checkpoint::StateValue(extra));
    return values;
  };
  const auto set = state.set;
  state.set = [&](const checkpoint::ShardedStateDict& values) {
    death.here("resume", 0);
    set(values);
  };
  const auto number = [&options](const char* name, int64_t otherwise) { return number_in(options, name, otherwise); };
  // Takes no memory itself.
  if (options.contains("extra")) extra = at::zeros({1}).expand({number("extra", 0) << 18});
  checkpoint::MemorySnapshot snapshot(state, {.every_steps = number("every", 1),
                                              .overlap = options.contains("overlap"),
                                              .required = options.contains("required")});
  const std::string file = folder + "/file.safetensors";
  const checkpoint::Resumed resumed = snapshot.resume([&]() -> std::optional<int64_t> {
    if (!std::filesystem::exists(file)) return std::nullopt;
    return checkpoint::load_checkpoint(training->module(), &training->optimizer(), file).step;
  });
  step = resumed.step;
  append(folder + "/resumed." + rank, resumed.describe() + (resumed.is_exact ? "" : " (inexact)"));

  const int world_size = cohort::get_world_size();
  while (step < num_steps) {
    const at::Tensor all =
        at::arange(64 * 8 * world_size).remainder(37 + step).mul(0.05).sin().view({world_size, 8, 64});
    const at::Tensor x = all[cohort::get_rank()];
    training->optimizer().zero_grad();
    const at::Tensor loss = torch::nn::functional::mse_loss(training->forward(x), x.slice(1, 0, 16));
    loss.backward();
    death.here("step", step + 1);
    snapshot.before_step();
    training->optimizer().step();
    ++step;
    append_loss(folder + "/loss." + rank, step, loss.item<double>());
    snapshot.step(step);
    death.wait("copy", step);
    death.here("kept", step);
    const int64_t every = number("disk", 0);
    if (every > 0 && step % every == 0 && rank == "0") {
      checkpoint::save_checkpoint(training->module(), &training->optimizer(), file, {.step = step});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(number("pause", 0)));
    if (step >= number("hold", step + 1)) wait_for_file(folder + "/go");
  }
  append(folder + "/final." + rank, std::to_string(checksum(get())) + (snapshot.is_on() ? " on" : " off"));
  cohort::barrier();
  cohort::destroy_process_group();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  }
}
