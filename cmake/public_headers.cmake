# The public API, header by header: what is installed, and all that a user's program may include. A header that is not here
# is ours to change. tools/dev/check_public_headers.py compares this list with cohort/cohort.h and with the headers themselves.
set(COHORT_PUBLIC_HEADERS
    # One include for a training program.
    cohort/cohort.h
    cohort/export.h
    cohort/version.h

    cohort/checkpoint/named_tensors.h
    cohort/checkpoint/safetensors.h
    cohort/checkpoint/state_dict.h
    cohort/checkpoint/training_checkpoint.h

    cohort/comm/collectives/coalescing.h
    cohort/comm/collectives/collectives.h
    cohort/comm/collectives/object_collectives.h
    cohort/comm/collectives/point_to_point.h
    cohort/comm/collectives/shm_empty.h
    cohort/comm/group/device.h
    cohort/comm/group/process_group.h
    cohort/comm/group/subgroups.h
    cohort/comm/memory/shared_allocator.h
    cohort/comm/pickle/pickle.h
    cohort/comm/process/expires.h
    cohort/comm/process/process_context.h
    cohort/comm/process/share_memory.h
    cohort/comm/process/spawn.h
    cohort/comm/process/tensor_channel.h
    cohort/comm/registry/backend_registry.h
    cohort/comm/report/flight_recorder.h
    cohort/comm/report/worker_server.h

    cohort/data/datasets/tensor_dataset.h
    cohort/data/datasets/text_corpus.h
    cohort/data/datasets/token_dataset.h
    cohort/data/loader/batch_stream.h
    cohort/data/loader/collate.h
    cohort/data/loader/data_loader.h
    cohort/data/loader/distributed_sampler.h
    cohort/data/loader/sampler.h

    cohort/mesh/device_mesh.h
    cohort/mesh/placement.h

    cohort/parallel/data_parallel/data_parallel.h
    cohort/parallel/ddp/buffer_comm_hook.h
    cohort/parallel/ddp/comm_hook.h
    cohort/parallel/ddp/distributed_data_parallel.h
    cohort/parallel/ddp/grad_bucket.h
    cohort/parallel/ddp/options.h
    cohort/parallel/ddp/reducer.h
    cohort/parallel/functional/functional.h
    cohort/parallel/functional/functional_collectives.h
    cohort/parallel/optim/clip_grad.h
    cohort/parallel/module/join.h

    # Included by those above, not by users.
    cohort/base/file.h
    cohort/base/result.h
    cohort/comm/backend/backend_request.h
    cohort/parallel/data_parallel/gather_log.h
    cohort/parallel/data_parallel/parallel_apply.h
    cohort/parallel/data_parallel/parallel_backward.h
    cohort/parallel/data_parallel/placement.h
    cohort/parallel/data_parallel/replicas.h
    cohort/parallel/data_parallel/scatter_gather.h
    cohort/parallel/ddp/replica.h
    cohort/parallel/module/signature.h
    cohort/parallel/module/tensor_tree.h
    cohort/parallel/module/wrapper_base.h
    cohort/parallel/optim/tensors.h)

# Narrow headers, by their own names only: cohort/cohort.h stays what every training program needs.
set(COHORT_NARROW_HEADERS
    cohort/checkpoint/optimizer_state.h
    cohort/mesh/shard.h
    cohort/mesh/shard_spec.h
    cohort/mesh/sharded_tensor.h
    cohort/models/gpt.h
    cohort/models/ngram.h
    cohort/models/resnet.h
    cohort/parallel/activation/activation_checkpoint.h
    cohort/parallel/activation/checkpoint.h
    cohort/parallel/activation/checkpoint_call.h
    cohort/parallel/activation/checkpoint_options.h
    cohort/parallel/activation/save_on_cpu.h
    cohort/parallel/activation/saved_tensor_hooks.h
    cohort/parallel/data_parallel/broadcast_reduce.h
    cohort/parallel/ddp/hooks/all_reduce_hook.h
    cohort/parallel/ddp/hooks/comm_hook_type.h
    cohort/parallel/ddp/hooks/compress_hooks.h
    cohort/parallel/ddp/hooks/noop_hook.h
    cohort/parallel/ddp/hooks/post_local_sgd_hook.h
    cohort/parallel/ddp/hooks/power_sgd_hook.h
    cohort/parallel/ddp/hooks/power_sgd_state.h
    cohort/parallel/ddp/hooks/quantization_hooks.h
    cohort/parallel/fsdp/comm_plugins.h
    cohort/parallel/fsdp/full_tensor.h
    cohort/parallel/fsdp/fully_shard.h
    cohort/parallel/fsdp/group_settings.h
    cohort/parallel/fsdp/memory_account.h
    cohort/parallel/fsdp/module_sharding.h
    cohort/parallel/fsdp/optimizer_state.h
    cohort/parallel/fsdp/options.h
    cohort/parallel/fsdp/pass_arguments.h
    cohort/parallel/fsdp/sharded_module.h
    cohort/parallel/fsdp/sharded_parameter.h
    cohort/parallel/fsdp/replicate.h
    cohort/parallel/fsdp/sharding.h
    cohort/parallel/fsdp/side_stream.h
    cohort/parallel/fsdp/symm_mem_buffers.h
    cohort/parallel/module/gradient_hooks.h
    cohort/parallel/optim/average_parameters.h
    cohort/parallel/optim/fused_optimizers.h
    cohort/parallel/optim/grad_scaler.h
    cohort/parallel/optim/model_averager.h
    cohort/parallel/optim/post_local_sgd_optimizer.h
    cohort/parallel/zero/ddp_zero_hook.h
    cohort/parallel/zero/zero_redundancy_optimizer.h
    cohort/train/progress.h
    cohort/train/schedule.h
    cohort/train/text_split.h)
