// ddp_train CASES RESULTS ENGINE...: one rank of a job that trains every case in the folder CASES with every engine
// ("cohort", "c10d", "inline"), and writes RESULTS/<case>.<engine>.<rank>.safetensors.
#include <torch/nn/functional/loss.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "hooks_by_name.h"
#include "nets.h"
#include "tests/support/inline_engine.h"
#include "training_case.h"

namespace {

using namespace cohort;
using namespace cohort::proof;

// Class numbers mean cross entropy, other targets squared errors.
at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  namespace F = torch::nn::functional;
  if (target.scalar_type() != at::kLong) return F::mse_loss(output, target);
  return F::cross_entropy(output.flatten(0, -2), target.flatten());
}

template <class Net>
class Training {
 public:
  Training(Net net, const TrainingCase& given, ddp::Engine engine)
      : given_(given),
        engine_(engine),
        ddp_(initialized(net, given), given.ddp_options(engine, *net)),
        record_(ddp_->module()),
        optimizer_(given.optimizer(unique_parameters(ddp_->module()).values())) {
    register_hook(given.setting("hook"), ddp_->reducer());
    if (has_fused_step() && engine != ddp::Engine::kC10d) ddp_->fuse_step(*optimizer_);
  }

  void run(const std::string& result_path) {
    note_buckets();
    record_.add_state();
    for (int i = 0; i < given_.number("dropped_passes"); ++i) {
      loss_of(forward(0, 0), given_.batch("y", 0, 0)).backward();
      optimizer_->zero_grad();
    }
    if (given_.setting("join").empty()) {
      train_all_steps();
    } else {
      const auto join = ddp_->join({.divide_by_initial_world_size = given_.setting("join") == "initial"});
      train_all_steps();
    }
    record_.add_state();
    record_.set_logging_data(ddp_->ddp_logging_data());
    record_.save(result_path);
  }

 private:
  static Net& initialized(Net& net, const TrainingCase& given) {
    given.initialize(*net);
    return net;
  }

  bool has_fused_step() const { return given_.setting("optimizer").ends_with("_fused"); }

  void train_all_steps() {
    for (int64_t step = 0; step < given_.num_steps(); ++step) {
      for (int64_t micro_batch = 0; micro_batch + 1 < given_.num_micro_batches(); ++micro_batch) {
        const auto local = ddp_->no_sync();
        backward(step, micro_batch);
      }
      backward(step, given_.num_micro_batches() - 1);
      if (!has_fused_step()) record_.add_gradients();
      optimizer_->step();
      zero_gradients();
      record_.add_state();
      note_buckets();
    }
  }

  void backward(int64_t step, int64_t micro_batch) {
    const auto loss = loss_of(forward(step, micro_batch), given_.batch("y", step, micro_batch));
    record_.add("loss", loss);
    loss.backward();
  }

  at::Tensor forward(int64_t step, int64_t micro_batch) {
    const auto x = given_.batch("x", step, micro_batch);
    if constexpr (std::is_same_v<Net, Branches>) {
      return ddp_(x, given_.batch("flags", step, micro_batch).item<int64_t>());
    } else {
      return ddp_(x);
    }
  }

  // c10d::Reducer's bucket views are autograd views, which LibTorch's zero_grad refuses to detach.
  void zero_gradients() {
    const bool sets_to_none = given_.flag("set_to_none");
    if (engine_ != ddp::Engine::kC10d) return optimizer_->zero_grad(sets_to_none);
    for (const auto& parameter : ddp_->module().parameters()) {
      auto& gradient = parameter.mutable_grad();
      if (sets_to_none) gradient.reset();
      if (gradient.defined()) gradient.zero_();
    }
  }

  // c10d::Reducer cannot list a bucket whose gradient is sparse.
  void note_buckets() {
    if (given_.flag("sparse")) return;
    auto others = given_.words("ignored");
    for (auto& name : given_.words("delayed")) others.push_back(std::move(name));
    record_.add_buckets(ddp_->reducer().buckets(), others);
  }

  const TrainingCase& given_;
  ddp::Engine engine_;
  DistributedDataParallel<typename Net::ContainedType> ddp_;
  Record record_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

ddp::Engine engine_named(const std::string& name) {
  if (name == "cohort") return ddp::Engine::kCohort;
  if (name == "c10d") return ddp::Engine::kC10d;
  TORCH_CHECK_VALUE(name == "inline", "unknown engine \"", name, "\"");
  return ddp::kInline;
}

void train(const std::string& path, const std::string& engine_name, const std::string& result_path) {
  const TrainingCase given(path);
  const auto engine = engine_named(engine_name);
  const auto& net = given.setting("net");
  if (net == "mlp") return Training(Mlp(), given, engine).run(result_path);
  if (net == "cnn") return Training(Cnn(), given, engine).run(result_path);
  if (net == "transformer") return Training(Transformer(given.flag("sparse")), given, engine).run(result_path);
  if (net == "branches") return Training(Branches(), given, engine).run(result_path);
  if (net == "mixed") return Training(Mixed(), given, engine).run(result_path);
  TORCH_CHECK_VALUE(false, "unknown net \"", net, "\"");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::cerr << "usage: ddp_train CASES RESULTS ENGINE...\n";
    return 2;
  }
  const char* const backend = std::getenv("DDP_BACKEND");
  cohort::init_process_group(backend ? backend : "gloo");
  std::vector<std::filesystem::path> cases;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) cases.push_back(entry.path());
  std::sort(cases.begin(), cases.end());
  const std::vector<std::string> engines(argv + 3, argv + argc);
  for (const auto& path : cases) {
    for (const auto& engine : engines) {
      if (engine == "c10d" && path.stem().string().starts_with("precision")) continue;  // refused
      const auto name = path.stem().string() + "." + engine + "." + std::to_string(cohort::get_rank());
      try {
        train(path, engine, argv[2] + ("/" + name) + ".safetensors");
      } catch (...) {
        std::cerr << name << " failed\n";
        throw;
      }
    }
  }
  cohort::destroy_process_group();
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
