// Goes on with a run: going_on STRATEGY OPTIMIZER STEPS FROM TO. FROM has a model, an optimizer and batches for each step and
// rank; rank 0 writes TO, with the losses that it has had.
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/checkpoint/optimizer/optimizer_state.h>
#include <cohort/checkpoint/state/distributed_state.h>
#include <cohort/checkpoint/state/python_state.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <cohort/parallel/optim/fused_optimizers.h>
#include <cohort/parallel/zero/zero_redundancy_optimizer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace checkpoint = cohort::checkpoint;
using torch::optim::Optimizer;
using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;
using Dict = c10::impl::GenericDict;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{8, 64};
  torch::nn::Linear second{64, 32};
};
TORCH_MODULE(Net);

// The options come from the file.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, ParamGroups groups) {
  namespace lib = torch::optim;
  if (name == "adam") return std::make_unique<cohort::optim::Adam>(std::move(groups));
  if (name == "amsgrad")
    return std::make_unique<cohort::optim::Adam>(std::move(groups), lib::AdamOptions().amsgrad(true));
  if (name == "adamw") return std::make_unique<cohort::optim::AdamW>(std::move(groups));
  if (name == "sgd") return std::make_unique<cohort::optim::SGD>(std::move(groups), lib::SGDOptions(0.1));
  if (name == "libtorch_adam") return std::make_unique<lib::Adam>(std::move(groups));
  if (name == "libtorch_sgd") return std::make_unique<lib::SGD>(std::move(groups), lib::SGDOptions(0.1));
  if (name == "rmsprop") return std::make_unique<lib::RMSprop>(std::move(groups));
  if (name == "adagrad") return std::make_unique<lib::Adagrad>(std::move(groups));
  if (name == "lbfgs") return std::make_unique<lib::LBFGS>(std::move(groups), lib::LBFGSOptions());
  TORCH_CHECK_VALUE(false, "no optimizer ", name);
}

// Weights and biases with options of their own, but for LBFGS, which has one group.
ParamGroups groups_of(const std::string& name, const std::vector<at::Tensor>& parameters) {
  if (name == "lbfgs") return {torch::optim::OptimizerParamGroup(parameters)};
  return {torch::optim::OptimizerParamGroup({parameters[0], parameters[2]}),
          torch::optim::OptimizerParamGroup({parameters[1], parameters[3]})};
}

struct Run {
  std::string optimizer;
  int64_t num_steps;
  Dict from;
  int rank;

  at::Tensor batch(const char* name, int64_t step) const { return from.at(name).toTensor()[step][rank]; }

  // `forward`: under the strategy.
  c10::List<double> train(Optimizer& optimizer, const std::function<at::Tensor(at::Tensor)>& forward) const {
    c10::List<double> losses;
    for (int64_t step = 0; step < num_steps; ++step) {
      const auto closure = [&] {
        optimizer.zero_grad();
        const at::Tensor loss = torch::nn::functional::mse_loss(forward(batch("x", step)), batch("y", step));
        loss.backward();
        return loss;
      };
      losses.push_back(
          (this->optimizer == "lbfgs" ? optimizer.step(closure) : step_after(closure(), optimizer)).item<double>());
    }
    return losses;
  }
  static at::Tensor step_after(const at::Tensor& loss, Optimizer& optimizer) {
    optimizer.step();
    return loss;
  }
};

Dict dict_of(c10::IValue model, c10::IValue optimizer, const c10::List<double>& losses) {
  Dict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("model", std::move(model));
  dict.insert("optimizer", std::move(optimizer));
  dict.insert("losses", losses);
  return dict;
}

// Every rank has the whole optimizer, or ZeRO puts it together.
Dict run_whole(const Run& run, torch::nn::Module& model, Optimizer& optimizer,
               const std::function<at::Tensor(at::Tensor)>& forward) {
  checkpoint::load_state_dict(model, checkpoint::tensors_in(run.from.at("model")));
  checkpoint::load_optimizer_state_dict(optimizer, run.from.at("optimizer"));
  const auto losses = run.train(optimizer, forward);
  if (auto* const zero = dynamic_cast<cohort::ZeroRedundancyOptimizer*>(&optimizer)) zero->consolidate_state_dict(0);
  if (run.rank != 0) return dict_of({}, {}, losses);
  return dict_of(checkpoint::python_dict(model), checkpoint::optimizer_state_dict(optimizer), losses);
}

// Rank 0 reads, all get their parts.
Dict run_sharded(const Run& run, const cohort::fsdp::Options& options) {
  auto model = cohort::fully_shard(Net(), options);
  const auto optimizer = make_optimizer(run.optimizer, groups_of(run.optimizer, model->parameters()));
  checkpoint::ModelAndOptimizerState state;
  if (run.rank == 0) {
    state.model = checkpoint::values_in(run.from.at("model"));
    state.optimizer = checkpoint::flat_optimizer_state(run.from.at("optimizer"), *model, *optimizer);
  }
  checkpoint::set_state_dict(*model, *optimizer, state, {.full_state_dict = true, .broadcast_from_rank0 = true});
  const auto losses = run.train(*optimizer, [&](const at::Tensor& x) { return model->forward(x); });
  state = checkpoint::get_state_dict(*model, *optimizer, {.full_state_dict = true, .cpu_offload = true});
  if (run.rank != 0) return dict_of({}, {}, losses);
  auto dict = dict_of(checkpoint::python_dict(state.model),
                      checkpoint::nested_optimizer_state(state.optimizer, *model, *optimizer), losses);
  dict.insert("by_name", checkpoint::nested_optimizer_state(state.optimizer, *model, *optimizer,
                                                            checkpoint::ParameterKeys::kNames));
  return dict;
}

Dict run_strategy(const std::string& strategy, const Run& run) {
  if (strategy == "fsdp") return run_sharded(run, {});
  if (strategy == "gathered") return run_sharded(run, {.one_memory = false});
  Net net;
  if (strategy == "plain") {
    const auto optimizer = make_optimizer(run.optimizer, groups_of(run.optimizer, net->parameters()));
    return run_whole(run, *net, *optimizer, [&](const at::Tensor& x) { return net(x); });
  }
  cohort::DistributedDataParallel model(net);
  const auto forward = [&](const at::Tensor& x) { return model(x); };
  const auto groups = groups_of(run.optimizer, model->parameters());
  if (strategy == "ddp") return run_whole(run, *model, *make_optimizer(run.optimizer, groups), forward);
  TORCH_CHECK_VALUE(strategy == "zero", "no strategy ", strategy);
  cohort::ZeroRedundancyOptimizer zero(groups,
                                       [&](ParamGroups own) { return make_optimizer(run.optimizer, std::move(own)); });
  return run_whole(run, *model, zero, forward);
}

}  // namespace

int main(int, char** argv) {
  const std::string strategy = argv[1];
  const bool is_alone = strategy == "plain";
  if (!is_alone) cohort::init_process_group("cohort");
  const int rank = is_alone ? 0 : cohort::get_rank();
  const Run run{argv[2], std::stoll(argv[3]), checkpoint::load(argv[4]).toGenericDict(), rank};
  const Dict result = run_strategy(strategy, run);
  if (rank == 0) checkpoint::save(result, argv[5], {.metadata_entries = true});
  if (!is_alone) cohort::destroy_process_group();
  return 0;
}
