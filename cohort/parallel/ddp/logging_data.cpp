#include "cohort/parallel/ddp/logging_data.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdio>
#include <set>

#include "cohort/base/log/log.h"
#include "cohort/base/system/env.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/parallel/ddp/engines/engine.h"
#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/norm/convert_sync_batch_norm.h"

namespace cohort::ddp {
namespace {

// torch::nn::SequentialImpl -> Sequential
std::string class_name(const torch::nn::Module& module) {
  auto name = module.name();
  if (const auto found = name.rfind("::"); found != std::string::npos) name = name.substr(found + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

int64_t total_bytes(const std::vector<at::Tensor>& tensors, const std::vector<size_t>& indices) {
  int64_t bytes = 0;
  for (const size_t index : indices) bytes += static_cast<int64_t>(tensors[index].nbytes());
  return bytes;
}

std::string variable(const char* name) { return base::get_env(name).value_or("N/A"); }

void add_means(c10::DDPLoggingData& data, const StepTimes& times) {
  const auto& last = times.last();
  const auto& sum = times.sum();
  const auto count = times.num_noted();
  auto& ints = data.ints_map;
  ints["forward_compute_time"] = last.backward_begin;
  ints["backward_compute_time"] = last.compute_end - last.backward_begin;
  ints["backward_comm_time"] = last.comm_end - last.comm_begin;
  ints["backward_compute_comm_overlap_time"] = last.overlap;
  ints["avg_forward_compute_time"] = sum.backward_begin / count;
  ints["avg_backward_compute_time"] = (sum.compute_end - sum.backward_begin) / count;
  ints["avg_backward_comm_time"] = (sum.comm_end - sum.comm_begin) / count;
  ints["avg_backward_compute_comm_overlap_time"] = sum.overlap / count;
  ints["forward_compute_time_start"] = last.forward_begin;
  ints["backward_compute_time_start"] = last.forward_begin + last.backward_begin;
  ints["backward_compute_time_end"] = last.forward_begin + last.compute_end;
  ints["backward_comm_time_start"] = last.forward_begin + last.comm_begin;
  ints["backward_comm_time_end"] = last.forward_begin + last.comm_end;
}

}  // namespace

std::string LoggingData::backend_name() const {
  return replica_.options_.process_group->getBackend(replica_.device_.type())->getBackendName();
}

std::string LoggingData::bucket_sizes(const std::vector<std::vector<size_t>>& buckets) const {
  std::vector<int64_t> sizes;
  for (const auto& indices : buckets) sizes.push_back(total_bytes(replica_.reducer_->parameters_, indices));
  return c10::Join(", ", sizes);
}

void LoggingData::add_construction(c10::DDPLoggingData& data) const {
  const auto& options = replica_.options_;
  auto& strs = data.strs_map;
  auto& ints = data.ints_map;
  strs["module_name"] = class_name(replica_.module_);
  std::vector<int> device_ids;
  for (const auto& device : options.device_ids) device_ids.push_back(device.index());
  strs["device_ids"] = c10::Join(", ", device_ids);
  strs["backend_name"] = backend_name();
  ints["output_device"] = options.output_device ? options.output_device->index() : -1;
  ints["broadcast_buffers"] = options.forward_sync_buffers;
  ints["has_sync_bn"] = norm::has_sync_batch_norm(replica_.module_);
  ints["world_size"] = options.process_group->getSize();
  ints["rank"] = options.process_group->getRank();
  ints["bucket_cap_bytes"] =
      static_cast<int64_t>(bucket_capacity(options.bucket_cap_mb, options.bucket_cap_mb_list).bytes);
  ints["find_unused_parameters"] = options.find_unused_parameters;
  ints["gradient_as_bucket_view"] = options.gradient_as_bucket_view;
  if (options.static_graph) ints["static_graph"] = 1;
  if (replica_.was_in_join_) ints["join_uneven_inputs"] = 1;
  if (!replica_.reducer_) return;
  if (!replica_.reducer_->comm_hook_name_.empty()) strs["comm_hook"] = replica_.reducer_->comm_hook_name_;
  std::set<std::string> dtypes;
  std::set<std::string> devices;
  int64_t bytes = 0;
  for (const auto& parameter : replica_.reducer_->parameters_) {
    dtypes.emplace(parameter.dtype().name());
    devices.insert(parameter.device().str());
    bytes += static_cast<int64_t>(parameter.nbytes());
  }
  strs["dtypes"] = c10::Join(", ", dtypes);
  ints["is_multi_device_module"] = devices.size() > 1;
  ints["num_parameter_tensors"] = static_cast<int64_t>(replica_.reducer_->parameters_.size());
  ints["total_parameter_size_bytes"] = bytes;
  const auto buckets = replica_.reducer_->engine_->first_buckets();
  if (!buckets.empty()) strs["bucket_sizes"] = bucket_sizes(buckets);
}

void LoggingData::add_environment(c10::DDPLoggingData& data) const {
  auto& strs = data.strs_map;
  strs["master_port"] = variable("MASTER_PORT");
  strs["master_addr"] = variable("MASTER_ADDR");
  strs["torch_distributed_debug"] = variable("TORCH_DISTRIBUTED_DEBUG");
  strs["cuda_visible_devices"] = variable("CUDA_VISIBLE_DEVICES");
  const auto backend = backend_name();
  if (backend == "nccl") {
    strs["nccl_socket_ifname"] = variable("NCCL_SOCKET_IFNAME");
    strs["nccl_blocking_wait"] = variable("TORCH_NCCL_BLOCKING_WAIT");
    strs["nccl_async_error_handling"] = variable("TORCH_NCCL_ASYNC_ERROR_HANDLING");
    strs["nccl_debug"] = variable("NCCL_DEBUG");
    strs["nccl_nthreads"] = variable("NCCL_NTHREADS");
    strs["nccl_ib_timeout"] = variable("NCCL_IB_TIMEOUT");
  } else if (backend == "gloo") {
    strs["gloo_socket_ifname"] = variable("GLOO_SOCKET_IFNAME");
    strs["gloo_device_transport"] = variable("GLOO_DEVICE_TRANSPORT");
  }
}

void LoggingData::add_steps(c10::DDPLoggingData& data) const {
  auto& engine = *replica_.reducer_->engine_;
  auto& strs = data.strs_map;
  auto& ints = data.ints_map;
  if (const auto failure = engine.failure(); !failure.empty()) {
    ints["has_error"] = 1;
    strs["error"] = failure;
  }
  ints["iteration"] = 0;
  const auto* times = engine.times();
  if (!times || times->num_noted() == 0) return;
  const auto buckets = engine.buckets();
  ints["iteration"] = times->last_number();
  ints["num_buckets_reduced"] = static_cast<int64_t>(buckets.size());
  ints["unused_parameter_size"] = total_bytes(replica_.reducer_->parameters_, engine.unused());
  ints["has_rebuilt_buckets"] = engine.has_rebuilt_buckets();
  if (engine.has_rebuilt_buckets()) {
    strs["rebuilt_bucket_sizes"] = bucket_sizes(buckets);
    std::vector<std::string> lists;
    for (const auto& indices : buckets) lists.push_back(c10::Join(" ", indices));
    strs["rebuilt_per_bucket_param_indices"] = c10::Join(", ", lists);
  }
  strs["prev_iteration_grad_ready_order_indices"] = c10::Join(", ", times->gradient_order());
  add_means(data, *times);
}

c10::DDPLoggingData LoggingData::all() const {
  c10::DDPLoggingData data;
  add_construction(data);
  add_environment(data);
  if (replica_.reducer_) add_steps(data);
  return data;
}

std::string LoggingData::report() const {
  const auto head = fmt::format(
      "DistributedDataParallel of {} on rank {} of {}, backend {}: ", class_name(replica_.module_),
      replica_.options_.process_group->getRank(), replica_.options_.process_group->getSize(), backend_name());
  const auto* times = replica_.reducer_ ? replica_.reducer_->engine_->times() : nullptr;
  if (!times || times->num_noted() == 0) return head + "no step was noted\n";
  const auto count = times->num_noted();
  const auto& sum = times->sum();
  const auto mean = [](int64_t nanoseconds, int64_t number) {
    return static_cast<double>(nanoseconds) / 1000.0 / static_cast<double>(number);
  };
  auto text = head + fmt::format("mean of {} of {} steps, in microseconds\n", count, times->num_steps());
  text += fmt::format(
      "  forward {:.1f}, backward {:.1f}, reductions {:.1f} (first launch to last result), of these during backward "
      "{:.1f}\n",
      mean(sum.backward_begin, count), mean(sum.compute_end - sum.backward_begin, count),
      mean(sum.comm_end - sum.comm_begin, count), mean(sum.overlap, count));
  text += "  bucket  tensors       bytes       ready    launched        wire     exposed\n";
  const auto buckets = replica_.reducer_->engine_->buckets();
  const auto noted = times->num_noted_of_buckets();
  for (size_t i = 0; i < buckets.size() && noted > 0; ++i) {
    const auto& bucket = times->bucket_sums()[i];
    text += fmt::format("  {:>6}  {:>7}  {:>10}  {:>10.1f}  {:>10.1f}  {:>10.1f}  {:>10.1f}\n", i, buckets[i].size(),
                        total_bytes(replica_.reducer_->parameters_, buckets[i]), mean(bucket.ready, noted),
                        mean(bucket.launched, noted), mean(bucket.finished - bucket.launched, noted),
                        mean(bucket.exposed, noted));
  }
  return text + "  ready and launched: since forward began; exposed: when backward had nothing left to compute\n";
}

c10::DDPLoggingData Replica::ddp_logging_data() const { return LoggingData(*this).all(); }

std::string Replica::ddp_report() const { return LoggingData(*this).report(); }

void Replica::set_ddp_runtime_logging_sample_rate(int64_t sample_rate) {
  TORCH_CHECK_VALUE(sample_rate >= 1, "DDP runtime logging sample rate should be equal or greater than 1, got ",
                    sample_rate);
  if (auto* times = reducer().engine_->times()) times->set_sample_rate(sample_rate);
}

void Replica::print_report() const {
  try {
    std::fputs(ddp_report().c_str(), stderr);
  } catch (const std::exception& error) {
    base::log_warning(fmt::format("COHORT_DDP_REPORT: cannot make the report: {}", comm::text_of(error)));
  }
}

}  // namespace cohort::ddp
