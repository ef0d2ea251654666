// fully_shard on models of layers that ranks compute together (parallel_layers.h): losses, norms, gradients and states are those
// of one process.
#include <gtest/gtest.h>

#include <stdexcept>

#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/fsdp/replicate.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/parallel/together/layer_run.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::LayerRun;
using test::run_workers;
using test::TemporaryFolder;

constexpr int64_t kLayerStepsBefore = 3, kLayerStepsAfter = 3;

void begin_layers() { init_process_group(test::backend_of_tests().c_str()); }

void expect_numbers(const LayerRun::Numbers& got, const LayerRun::Numbers& expected, const std::string& what) {
  const auto off = std::max(std::abs(got.loss - expected.loss), std::abs(got.norm - expected.norm));
  if (off < 1e-5) return;
  throw std::runtime_error(what + ": loss " + std::to_string(got.loss) + ", norm " + std::to_string(got.norm) +
                           ", but one process has " + std::to_string(expected.loss) + " and " +
                           std::to_string(expected.norm));
}

void expect_near(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  if (got.sizes() == expected.sizes() && at::allclose(got, expected, 1e-5, 1e-6)) return;
  throw std::runtime_error(what + ": " + c10::str(got) + " is not " + c10::str(expected));
}

std::string canonical(std::string name) {
  const std::string wrapper = "module.";
  for (auto at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper)) name.erase(at, wrapper.size());
  return name;
}

// Of all ranks together, as their specs say.
void expect_gradients(const LayerRun& run, const LayerRun& alone, const std::string& what) {
  const auto expected = alone.net->named_parameters();
  size_t count = 0;
  for (const auto& parameter : fsdp::sharded_parameters(*run.model)) {
    const auto name = canonical(parameter.name);
    const auto whole = DTensor(parameter.shard.grad(), *parameter.spec).full_tensor();
    expect_near(whole, expected[name].grad(), what + ": " + name);
    ++count;
  }
  REQUIRE(count == expected.size());
}

COHORT_WORKER(layers_train) {
  begin_layers();
  const auto one = test::group_of_one();
  for (const parallel::ParallelDims& dims :
       {parallel::ParallelDims{.dp_shard = 2, .tp = 2}, {.dp_replicate = 2, .tp = 2}, {.dp_shard = 4}, {.tp = 4}}) {
    for (const bool shares_positions : {false, true}) {
      for (const bool one_memory : {true, false}) {
        if (!one_memory && dims.dp_size() == 1) continue;
        const auto what = c10::str("replicas ", dims.dp_replicate, ", tp ", dims.tp,
                                   shares_positions ? ", sequence parallel" : "", one_memory ? "" : ", gathered");
        auto alone = test::layers_alone(one);
        auto run = test::layers_together(dims, one, {.shares_positions = shares_positions, .one_memory = one_memory});
        LayerRun::Numbers first{}, last{};
        for (int step = 0; step < 4; ++step) {
          last = alone.train_step();
          if (step == 0) first = last;
          expect_numbers(run.train_step(), last, what + ", step " + std::to_string(step));
          if (run.model) expect_gradients(run, alone, what);
        }
        REQUIRE(last.loss < first.loss - 0.01);
      }
    }
  }
}

TEST(TogetherLayers, HaveTheLossesNormsAndGradientsOfOneProcess) {
  run_workers("layers_train", {.world_size = 4, .time_limit = std::chrono::seconds(120)}).expect_success();
}

COHORT_WORKER(layers_train_8) {
  begin_layers();
  const auto one = test::group_of_one();
  for (const bool one_memory : {true, false}) {
    auto alone = test::layers_alone(one);
    auto run = test::layers_together({.dp_replicate = 2, .dp_shard = 2, .tp = 2}, one, {.one_memory = one_memory});
    for (int step = 0; step < 3; ++step) {
      expect_numbers(run.train_step(), alone.train_step(), "2 x 2 x 2");
      expect_gradients(run, alone, "2 x 2 x 2");
    }
  }
}

TEST(TogetherLayers, OnThreeAxes) {
  run_workers("layers_train_8", {.world_size = 8, .time_limit = std::chrono::seconds(120)}).expect_success();
}

// Several backward passes, of which the last one reduces.
COHORT_WORKER(layers_accumulate) {
  begin_layers();
  const auto one = test::group_of_one();
  for (const bool one_memory : {true, false}) {
    auto alone = test::layers_alone(one);
    auto run =
        test::layers_together({.dp_shard = 2, .tp = 2}, one, {.shares_positions = true, .one_memory = one_memory});
    const auto tokens = at::arange(2 * 8).remainder(7).view({2, 8});
    for (int pass = 0; pass < 2; ++pass) {
      run.model->set_requires_gradient_sync(pass == 1);
      // A rank's rows weigh half of all.
      const auto own = (tokens + run.part.rank + 2 * pass).narrow(0, 0, 2);
      const auto logits = run.model(own);
      parallel::vocab_parallel_cross_entropy(logits.flatten(0, 1), own.flatten(),
                                             {.group = run.options.tp, .num_classes = test::kLayerWords})
          .backward();
      for (int rank = 0; rank < 2; ++rank) {
        const auto theirs = tokens + rank + 2 * pass;
        (at::cross_entropy_loss(alone.net(theirs).flatten(0, 1), theirs.flatten()) / 2).backward();
      }
    }
    parallel::reduce_sequence_gradients(run.net->norms(), run.options.tp);
    expect_gradients(run, alone, "two passes");
  }
}

TEST(TogetherLayers, AddUpSeveralPasses) { run_workers("layers_accumulate", {.world_size = 4}).expect_success(); }

COHORT_WORKER(layers_specs) {
  begin_layers();
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const auto expect = [&](const fsdp::Options& options, int64_t rows, const Placements& expected,
                          const DeviceMesh::AxisNames& axes) {
    at::manual_seed(1);
    parallel::ColumnParallelLinear layer(3, rows, parallel::ColumnParallelOptions{.group = mesh.group("tp")});
    const auto whole = layer->full_weight();
    auto model = fully_shard(layer, options);
    const auto weight = fsdp::sharded_parameters(*model).front();
    REQUIRE_EQUAL(to_string(weight.spec->placements()), to_string(expected));
    REQUIRE(weight.spec->mesh().axis_names() == axes);
    REQUIRE(weight.spec->shape() == std::vector<int64_t>({rows, 3}));
    REQUIRE(at::equal(DTensor(weight.shard.detach(), *weight.spec).full_tensor(), whole));
    const auto full = fsdp::full_tensor(weight);
    REQUIRE(full.defined() == (get_rank() == 0));
    REQUIRE(!full.defined() || at::equal(full, whole));
    REQUIRE_EQUAL(test::error_of([&] { layer->load_full(whole, at::ones({rows})); }),
                  "[cohort] load_full: fully_shard has sharded the weight\n  hint: load before fully_shard, or "
                  "afterwards with set_model_state_dict() and full_state_dict, or with write() of the wrapper");
  };
  expect({.mesh = mesh["dp"]}, 8, {StridedShard(0, 2), Shard(0)}, {"dp", "tp"});
  expect({.mesh = mesh["dp"]}, 5, {StridedShard(0, 2), Shard(0)}, {"dp", "tp"});
  expect({.process_group = mesh.group("dp")}, 8, {StridedShard(0, 2), Shard(0)}, {"dp_shard", "tp"});
  expect({.mesh = mesh, .dp_mesh_dims = fsdp::DataParallelMeshDims{.shard = {"dp"}}}, 8, {StridedShard(0, 2), Shard(0)},
         {"dp", "tp"});
}

TEST(TogetherLayers, ShardsAreWhatTheirSpecsSay) { run_workers("layers_specs", {.world_size = 4}).expect_success(); }

COHORT_WORKER(layers_write) {
  begin_layers();
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  for (const bool one_memory : {true, false}) {
    at::manual_seed(2);
    parallel::RowParallelLinear layer(5, 3, parallel::RowParallelOptions{.group = mesh.group("tp"), .bias = false});
    const auto whole = layer->full_weight();
    auto model = fully_shard(layer, {.mesh = mesh["dp"], .one_memory = one_memory});
    int64_t num_calls = 0;
    model->write([&](const std::string&, const at::Tensor& full) {
      ++num_calls;
      full.mul_(2);
    });
    REQUIRE(num_calls == (get_rank() == 0 ? 1 : 0));
    const auto weight = fsdp::sharded_parameters(*model).front();
    REQUIRE(at::equal(DTensor(weight.shard.detach(), *weight.spec).full_tensor(), whole * 2));
  }
}

TEST(TogetherLayers, OneRankWritesAllOfAPart) { run_workers("layers_write", {.world_size = 4}).expect_success(); }

// The notes of a layer outlive its wrapper.
COHORT_WORKER(layers_unwrapped) {
  begin_layers();
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  parallel::ColumnParallelLinear layer(3, 8, parallel::ColumnParallelOptions{.group = mesh.group("tp"), .bias = false});
  { const auto model = fully_shard(layer, {.mesh = mesh["dp"]}); }
  const auto state = checkpoint::get_model_state_dict(*layer);
  REQUIRE(state["weight"].is_shard() && state["weight"].spec->shape() == std::vector<int64_t>({8, 3}));
}

TEST(TogetherLayers, KnowTheirPartsWhenTheWrapperHasGone) {
  run_workers("layers_unwrapped", {.world_size = 4}).expect_success();
}

COHORT_WORKER(layers_refusals) {
  begin_layers();
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  parallel::ColumnParallelLinear layer(3, 8, parallel::ColumnParallelOptions{.group = mesh.group("tp")});
  REQUIRE_EQUAL(
      test::error_of([&] { fully_shard(layer); }),
      c10::str(
          "[cohort] fully_shard: this rank's shard of 'weight', of a tensor-parallel layer, cannot be sharded over "
          "rank ",
          get_rank() ^ 1,
          ", which has another shard\n  hint: give fully_shard only the data-parallel axis: .mesh = "
          "mesh[\"dp\"], or data_parallel_mesh(mesh) of ParallelDims"));
  // A mesh that crosses the layer's: its ranks have other parts.
  const auto crossed = DeviceMesh("cpu", std::vector<std::vector<int64_t>>{{0, 1}, {3, 2}}, {"dp", "other"});
  const auto text = test::error_of([&] { fully_shard(layer, {.mesh = crossed["dp"]}); });
  if (text.find(
          "parameter 0 is weight Float [4, 3] shard 0 of 2 along dimension 0 of [8, 3] on rank 0, but weight Float "
          "[4, 3] shard 1 of 2") == std::string::npos &&
      get_rank() % 3 == 0) {
    throw std::runtime_error(text);
  }
  REQUIRE(text != "(no error)");
  DistributedDataParallel<parallel::ColumnParallelLinearImpl> replica(layer,
                                                                      ddp::Options{.process_group = mesh.group("dp")});
  REQUIRE_EQUAL(test::error_of([&] { replica->track_gradient_norm(); }),
                "[cohort] track_gradient_norm does not support tensor-parallel layers, whose other shards are on other "
                "ranks. Use clip_grad_norm_ after backward.");
}

TEST(TogetherLayers, SayWhatDoesNotFit) { run_workers("layers_refusals", {.world_size = 4}).expect_success(); }

// ---- states

parallel::ParallelDims layer_dims(const std::string& text) {
  return {.dp_replicate = text.at(0) - '0', .dp_shard = text.at(2) - '0', .tp = text.at(4) - '0'};
}

std::string layer_folder(const std::string& name) { return test::worker_arguments().at(0) + "/" + name; }

LayerRun trained_layers(const Group& alone, int64_t steps) {
  auto run = test::layers_alone(alone);
  for (int64_t step = 0; step < steps; ++step) run.train_step();
  return run;
}

void expect_layer_state(const LayerRun& expected, const LayerRun& run, const std::string& what) {
  const auto one = checkpoint::get_state_dict(*expected.module, *expected.optimizer);
  const auto all = checkpoint::get_state_dict(*run.module, *run.optimizer, {.full_state_dict = true});
  for (const auto& [ours, theirs] : {std::pair(&one.model, &all.model), {&one.optimizer, &all.optimizer}}) {
    REQUIRE(ours->size() == theirs->size());
    for (const auto& item : *theirs) {
      if (item.value().is_tensor()) expect_near(item.value().tensor, (*ours)[item.key()].tensor, what + item.key());
    }
  }
}

COHORT_WORKER(layers_save) {
  begin_layers();
  const auto one = test::group_of_one();
  const auto& layout = test::worker_arguments().at(1);
  auto run = test::layers_together(layer_dims(layout), one);
  for (int64_t step = 0; step < kLayerStepsBefore; ++step) run.train_step();
  expect_layer_state(trained_layers(one, kLayerStepsBefore), run, layout + ": ");
  const auto state = checkpoint::get_state_dict(*run.module, *run.optimizer);
  checkpoint::save_sharded(state.model, layer_folder("model"), {.sync_files = false});
  checkpoint::save_sharded(state.optimizer, layer_folder("optimizer"), {.sync_files = false});
}

COHORT_WORKER(layers_resume) {
  begin_layers();
  const auto one = test::group_of_one();
  for (size_t i = 1; i < test::worker_arguments().size(); ++i) {
    const auto& layout = test::worker_arguments()[i];
    for (const bool one_memory : {true, false}) {
      auto run = test::layers_together(layer_dims(layout), one, {.one_memory = one_memory});
      auto state = checkpoint::get_state_dict(*run.module, *run.optimizer);
      for (const auto& item : state.model) item.value().tensor.detach().fill_(-1);
      checkpoint::load_sharded(state.model, layer_folder("model"), {.strict = true});
      checkpoint::load_sharded(state.optimizer, layer_folder("optimizer"), {.strict = true});
      checkpoint::set_state_dict(*run.module, *run.optimizer, state);
      run.step = kLayerStepsBefore;
      auto expected = trained_layers(one, kLayerStepsBefore);
      expect_layer_state(expected, run, layout + " resumed: ");
      for (int64_t step = 0; step < kLayerStepsAfter; ++step) {
        expect_numbers(run.train_step(), expected.train_step(), layout + " goes on");
      }
    }
  }
}

TEST(TogetherLayerStates, ARunGoesOnShardedOtherwise) {
  for (const std::string layout : {"1x2x2", "1x1x4"}) {
    const TemporaryFolder folder;
    run_workers("layers_save", {.world_size = 4, .arguments = {folder.file("run"), layout}}).expect_success();
    run_workers("layers_resume",
                {.world_size = 4, .arguments = {folder.file("run"), "1x1x4", "1x4x1", "1x2x2", "2x1x2"}})
        .expect_success();
    run_workers("layers_resume", {.world_size = 1, .arguments = {folder.file("run"), "1x1x1"}}).expect_success();
  }
}

COHORT_WORKER(layers_from_rank0) {
  begin_layers();
  const auto one = test::group_of_one();
  const auto expected = trained_layers(one, 2);
  checkpoint::ModelAndOptimizerState state;
  if (get_rank() == 0) state = checkpoint::get_state_dict(*expected.module, *expected.optimizer);
  for (const char* const layout : {"1x2x2", "1x1x4"}) {
    auto run = test::layers_together(layer_dims(layout), one);
    checkpoint::set_state_dict(*run.module, *run.optimizer, state,
                               {.full_state_dict = true, .broadcast_from_rank0 = true});
    expect_layer_state(expected, run, layout);
  }
}

TEST(TogetherLayerStates, FullOnesFromRankZero) {
  run_workers("layers_from_rank0", {.world_size = 4}).expect_success();
}

COHORT_WORKER(layers_zero) {
  begin_layers();
  const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  parallel::ColumnParallelLinear layer(3, 8, parallel::ColumnParallelOptions{.group = mesh.group("tp")});
  auto optimizer = ZeroRedundancyOptimizer::make<torch::optim::AdamW>(
      layer->parameters(), torch::optim::AdamWOptions(0.1), {.process_group = mesh.group("dp")});
  const auto text =
      test::error_of([&] { checkpoint::get_optimizer_state_dict(*layer, optimizer, {.full_state_dict = true}); });
  REQUIRE(text.find("cannot be gathered if ranks have shards") != std::string::npos);
}

TEST(TogetherLayerStates, OfZeroAreNotMadeWhole) { run_workers("layers_zero", {.world_size = 4}).expect_success(); }

}  // namespace
}  // namespace cohort
