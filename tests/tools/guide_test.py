"""The pages of docs/guide about an area: their code is that of examples/guide, which is compiled and run, and they leave out nothing of
what the area's public headers offer."""
import pathlib
import re
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/guide"

# Each page, its source, and the headers of which it mentions every function, class and option.
PAGES = {
    "collectives": ("examples/guide/collectives.cpp", [
        "comm/group/process_group.h", "comm/group/subgroups.h", "comm/group/device.h", "comm/collectives/collectives.h",
        "comm/collectives/point_to_point.h", "comm/collectives/object_collectives.h", "comm/collectives/coalescing.h",
        "comm/collectives/shm_empty.h", "comm/registry/backend_registry.h", "comm/report/flight_recorder.h",
        "comm/report/worker_server.h", "comm/pickle/pickle.h", "parallel/functional/functional.h",
        "parallel/functional/functional_collectives.h"]),
    "ddp": ("examples/guide/ddp.cpp", [
        "parallel/ddp/distributed_data_parallel.h", "parallel/ddp/settings/options.h", "parallel/ddp/reducer.h", "parallel/ddp/settings/comm_hook.h",
        "parallel/ddp/settings/grad_bucket.h", "parallel/ddp/hooks/all_reduce_hook.h", "parallel/ddp/comm_hook_type.h",
        "parallel/ddp/hooks/compress_hooks.h", "parallel/ddp/hooks/noop_hook.h", "parallel/ddp/hooks/post_local_sgd_hook.h",
        "parallel/ddp/hooks/power_sgd_hook.h", "parallel/ddp/hooks/power_sgd_state.h",
        "parallel/ddp/hooks/quantization_hooks.h", "parallel/module/join.h"]),
    "data": ("examples/guide/data.cpp", [
        "data/datasets/chain_dataset.h", "data/datasets/concat_dataset.h", "data/datasets/stack_dataset.h",
        "data/datasets/subset.h", "data/datasets/tensor_dataset.h", "data/datasets/text_corpus.h",
        "data/datasets/token_dataset.h", "data/samplers/elastic_distributed_sampler.h",
        "data/loader/iterable.h", "data/samplers/length_bucket_sampler.h", "data/loader/loader_plan.h", "data/samplers/state_dict.h", "data/loader/collate.h", "data/loader/data_loader.h", "data/samplers/distributed_sampler.h",
        "data/samplers/sampler.h"]),
    "datasets": ("examples/guide/datasets.cpp", [
        "extras/data/datasets/cifar.h", "extras/data/datasets/csv_dataset.h", "extras/data/datasets/download.h", "extras/data/datasets/idx_dataset.h",
        "extras/data/datasets/image_folder.h", "extras/data/datasets/image_io.h", "extras/data/datasets/numpy_dataset.h", "extras/data/datasets/numpy_files.h",
        "data/datasets/token_file_dataset.h"]),
    "checkpoints": ("examples/guide/checkpoints.cpp", [
        "checkpoint/file/safetensors.h", "checkpoint/file/torch_file.h", "checkpoint/state/state_dict.h", "checkpoint/checkpointer/training_checkpoint.h", "checkpoint/optimizer/optimizer_state.h",
        "checkpoint/optimizer/named_tensors.h", "checkpoint/state/persistence.h", "checkpoint/state/rng_state.h",
        "checkpoint/optimizer/scheduler_state.h", "checkpoint/state/distributed_state.h", "checkpoint/state/python_state.h"]),
    "checkpointer": ("examples/guide/checkpointer.cpp", ["checkpoint/checkpointer/checkpointer.h"]),
    "recovery": ("examples/guide/recovery.cpp", [
        "checkpoint/recovery/memory_snapshot.h", "checkpoint/recovery/skip_init.h", "checkpoint/recovery/snapshot_state.h"]),
    "sharded_checkpoints": ("examples/guide/sharded_checkpoints.cpp", [
        "checkpoint/sharded/sharded_checkpoint.h", "checkpoint/sharded/async_save.h", "checkpoint/sharded/convert.h"]),
    "data_parallel": ("examples/guide/data_parallel.cpp", [
        "parallel/data_parallel/broadcast_reduce.h", "parallel/data_parallel/data_parallel.h", "parallel/data_parallel/gather_log.h", "parallel/data_parallel/parallel_apply.h",
        "parallel/data_parallel/parallel_backward.h", "parallel/data_parallel/placement.h",
        "parallel/data_parallel/replicas.h", "parallel/data_parallel/scatter_gather.h"]),
    "optimizers": ("examples/guide/optimizers.cpp", [
        "parallel/optim/clip_grad.h", "parallel/optim/average_parameters.h", "parallel/optim/model_averager.h",
        "parallel/optim/fused_optimizers.h", "parallel/optim/grad_scaler.h", "parallel/optim/post_local_sgd_optimizer.h",
        "parallel/zero/ddp_zero_hook.h",
        "parallel/zero/zero_redundancy_optimizer.h"]),
    "schedules_and_metrics": ("examples/guide/schedules_and_metrics.cpp", [
        "train/metrics/accuracy.h", "train/metrics/metric.h", "train/optim/averaged_model.h", "train/optim/combined_schedulers.h",
        "train/optim/cosine_schedulers.h", "train/optim/cycle_schedulers.h", "train/optim/factor_schedulers.h",
        "train/optim/reduce_on_plateau.h", "train/optim/scheduler_base.h", "train/optim/swa_lr.h", "train/optim/update_bn.h"]),
    "device_mesh": ("examples/guide/device_mesh.cpp", [
        "mesh/device_mesh.h", "mesh/placement.h", "mesh/shard.h", "mesh/shard_spec.h"]),
    "tensor_parallel": ("examples/guide/tensor_parallel.cpp", [
        "parallel/tensor/division.h", "parallel/tensor/rng_scope.h", "parallel/tensor/parallel_layers.h",
        "parallel/tensor/parallelize_module.h", "parallel/tensor/with_layouts.h", "parallel/tensor/regions.h", "parallel/tensor/vocab_parallel_cross_entropy.h"]),
    "context_parallel": ("examples/guide/context_parallel.cpp", [
        "parallel/context/context_parallel.h", "parallel/context/ring_attention.h", "parallel/context/sequence_layout.h",
        "parallel/context/ulysses_attention.h"]),
    "pipeline": ("examples/guide/pipeline.cpp", [
        "checkpoint/state/tied_names.h", "models/gpt_stage.h", "parallel/pipeline/microbatches.h", "parallel/pipeline/pipeline_schedule.h",
        "parallel/pipeline/pipeline_loss.h", "parallel/pipeline/pipeline_stage.h", "parallel/pipeline/split.h"]),
    "dtensor": ("examples/guide/dtensor.cpp", [
        "dtensor/api/distribute_module.h", "dtensor/api/dtensor.h", "dtensor/api/factories.h", "dtensor/api/sharding_rule.h",
        "dtensor/wrapper/comm_counts.h"]),
    "together": ("examples/guide/together.cpp", ["parallel/dims/parallel_dims.h"]),
    "activation_checkpointing": ("examples/guide/activation_checkpointing.cpp", [
        "parallel/activation/activation_checkpoint.h", "parallel/activation/checkpoint.h",
        "parallel/activation/checkpoint_options.h", "parallel/activation/save_on_cpu.h",
        "parallel/activation/saved_tensor_hooks.h"]),
    "fsdp": ("examples/guide/fsdp.cpp", [
        "parallel/fsdp/full_tensor.h", "parallel/fsdp/fully_shard.h", "parallel/fsdp/optimizer_state.h", "parallel/fsdp/settings/options.h",
        "parallel/fsdp/sharded_module.h", "parallel/fsdp/sharding.h"]),
    "mixed_precision": ("examples/guide/mixed_precision.cpp", [
        "parallel/precision/autocast.h", "parallel/precision/autocast_function.h", "parallel/norm/convert_sync_batch_norm.h",
        "parallel/norm/sync_batch_norm.h"]),
    "models": ("examples/guide/models.cpp", [
        "extras/models/channels_last.h", "models/pretrainable.h", "models/pretrained.h", "extras/models/residual_block.h", "extras/models/resnet.h",
        "extras/models/small_models.h", "extras/models/vision_transformer.h"]),
    "trainer": ("examples/guide/trainer.cpp", [
        "train/strategy/accelerator.h", "train/strategy/prepared_loader.h", "train/trainer/callback.h", "train/strategy/pipeline_step.h", "train/run/seed_everything.h",
        "train/trainer/trainer.h", "train/strategy/trainer_options.h", "train/trainer/tuner.h"]),
    "memory": ("examples/guide/memory.cpp", ["comm/memory/shared_allocator.h"]),
    "logging": ("examples/guide/logging.cpp", [
        "train/config/run_config.h", "train/logging/epoch_line.h", "extras/train/logging/csv_logger.h", "train/logging/json_lines_logger.h", "train/logging/logger.h",
        "train/logging/model_summary.h", "extras/train/logging/plot.h", "extras/train/logging/run_loggers.h", "train/logging/run_summary.h", "extras/train/logging/summary_writer.h",
        "train/logging/system_metrics.h", "train/progress.h"]),
    "simulation": ("examples/11_simulation.cpp", ["parallel/ddp/reducer.h"]),
}


def blocks_of(page):
    return re.findall(r"(?ms)^ *```cpp\n(.*?)^ *```", (GUIDE / f"{page}.md").read_text())


def stands_in(block, source):
    """The block's lines stand in the source one after the other, all indented by the same amount."""
    wanted = textwrap.dedent(block).splitlines()
    lines = source.splitlines()
    for i, line in enumerate(lines):
        if line.strip() == wanted[0].strip() and textwrap.dedent("\n".join(lines[i:i + len(wanted)])).splitlines() == wanted:
            return True
    return False


def names_in(header):
    """What users can call, construct or set: functions, classes with their methods, and the fields of structs that hold options."""
    text = (ROOT / "cohort" / header).read_text()
    text = re.sub(r"(?s)namespace (?:\w+::)*detail \{.*?\}  // namespace (?:\w+::)*detail", "", text)
    text = re.sub(r"//.*", "", text)
    names = set(re.findall(r"(?:COHORT_API|^inline)\s+(?!\()[\w:<>,&* \n]*?\b(\w+)\(", text, re.M))
    for name, body in re.findall(r"(?ms)^class (?:COHORT_API )?(\w+)[^;{]*\{\n(.*?)^\};", text):
        names.add(name)
        public = body.split(" private:")[0].split(" protected:")[0]
        names |= set(re.findall(r"(?m)^  (?:static |virtual |\[\[nodiscard\]\] )*[\w:<>,&*]+(?: [\w:<>,&*]+)* [&*]?(\w+)\([^;]*(?:;|\{)", public))
    for name, body in re.findall(r"(?ms)^struct (\w*Options|\w*Progress)(?: : \w+)? \{\n(.*?)^\};", text):
        names.add(name)
        names |= set(re.findall(r"(?m)^  [^\n;={]*[ >](\w+)(?: = [^;]*|\{[^;]*\})?;", body))
    return {name for name in names if not name.endswith("Impl") and name not in ("operator", "bool", "for")}


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_is_compiled(page):
    source = (ROOT / PAGES[page][0]).read_text()
    blocks = blocks_of(page)
    assert blocks
    for block in blocks:
        assert stands_in(block, source), f"{page}.md shows what {PAGES[page][0]} does not have:\n{block}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_mentions_all_that_its_headers_offer(page):
    text = (GUIDE / f"{page}.md").read_text()
    for header in PAGES[page][1]:
        names = names_in(header)
        assert names or header.endswith("named_tensors.h"), header
        missing = sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", text))
        assert not missing, f"{page}.md does not mention {', '.join(missing)} of {header}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_found(page):
    assert f"({page}.md)" in (GUIDE / "README.md").read_text()
    assert "(docs/guide/README.md)" in (ROOT / "README.md").read_text()


def test_a_difference_is_seen():
    source = "void f() {\n  int a = 1;\n  int b = 2;\n}\n"
    assert stands_in("int a = 1;\nint b = 2;\n", source)
    assert not stands_in("int a = 1;\nint b = 3;\n", source)
    assert not stands_in("int b = 2;\nint a = 1;\n", source)


def lines_of_cifar():
    """(source, code) of the C++ side of the page's pairs `Python` → `C++`."""
    found = []
    for section in re.split(r"(?m)^## ", (GUIDE / "cifar.md").read_text())[1:]:
        heading = re.match(r"\d\. .*`(\w+\.\w+)`\n", section)
        pairs = re.findall(r"(?m)^- `.*`\n  → ((?:`[^`]+`\s+)+)", section)
        found += [(heading.group(1), code) for pair in pairs for code in re.findall(r"`([^`]+)`", pair)] if heading else []
    return found


def test_the_steps_of_cifar_are_what_their_page_shows():
    lines = lines_of_cifar()
    assert len(lines) > 25 and {source for source, _ in lines} == {
        "1_single.cpp", "2_data_parallel.cpp", "3_ddp.cpp", "4_long_run.cpp", "7_trainer.cpp"}
    for source, code in lines:
        text = re.sub(r"\s+", " ", (ROOT / "examples/cifar" / source).read_text())
        assert code in text, f"{source} has no {code}"
