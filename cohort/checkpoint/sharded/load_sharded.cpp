#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/checkpoint/file/scalar_type.h"
#include "cohort/checkpoint/sharded/plain_value.h"
#include "cohort/checkpoint/sharded/save_items.h"
#include "cohort/checkpoint/sharded/save_session.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/checkpoint/state/module_names.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/group/device.h"
#include "cohort/files/tensors/dcp/stored_checkpoint.h"
#include "cohort/parallel/module/purpose.h"

namespace cohort::checkpoint {
namespace {

class LoadSession {
 public:
  LoadSession(ShardedStateDict& state, std::string path, const LoadShardedOptions& options)
      : state_(state), path_(std::move(path)), options_(options) {}

  // Opens the checkpoint and compares it with the state, which it does not change. Returns the keys
  // from which the state is read.
  std::string check() {
    checkpoint_ = comm::or_throw(files::open_stored_checkpoint(path_));
    nlohmann::json keys = nlohmann::json::array();
    for (const auto& item : state_) {
      const std::string stored = stored_key(item.key(), item.value());
      keys.push_back(stored);
      check_key(stored, item.value());
    }
    return keys.dump();
  }

  // `keys`: the keys of all ranks.
  void check_unexpected(const std::set<std::string>& keys) const {
    std::vector<std::string> unexpected;
    for (const auto& [name, tensor] : checkpoint_.tensors) {
      if (!keys.contains(name)) unexpected.push_back(name);
    }
    for (const auto& [name, value] : checkpoint_.values) {
      if (!keys.contains(name)) unexpected.push_back(name);
    }
    TORCH_CHECK(unexpected.empty(), "Unexpected key(s) in checkpoint state_dict: ", base::quoted_list(unexpected),
                ".\n  hint: no rank's state has them; leave strict out to ignore them");
  }

  std::string fill() {
    const c10::AutoGradMode without_gradients(false);
    wait_for_passes();
    files::CheckpointReader reader(checkpoint_);
    for (auto& item : state_) {
      const std::string key = stored_key(item.key(), item.value());
      const auto value = checkpoint_.values.find(key);
      if (value != checkpoint_.values.end()) {
        item.value().value = detail::to_ivalue(key, value->second);
      } else if (checkpoint_.tensors.contains(key)) {
        fill_tensor(key, item.value(), reader);
      }
    }
    report_.bytes_read = reader.bytes_read();
    return "";
  }

  LoadReport& report() { return report_; }

 private:
  bool has(const std::string& key) const {
    return checkpoint_.tensors.contains(key) || checkpoint_.values.contains(key) ||
           checkpoint_.unreadable.contains(key);
  }

  // Returns the checkpoint's key for a value, which may be another name of a tied parameter, or the state's own.
  std::string stored_key(const std::string& key, const StateValue& value) const {
    if (has(key) || value.tied.own.empty() || !key.ends_with(value.tied.own)) return key;
    const std::string prefix = key.substr(0, key.size() - value.tied.own.size());
    for (const std::string& other : value.tied.others) {
      if (has(prefix + other)) return prefix + other;
    }
    return key;
  }

  // Waits until passes have copied the shards on the CPU (CPUOffloadPolicy) that they will read, before these change.
  void wait_for_passes() const {
    const c10::Device device = current_device();
    const bool are_there = std::any_of(state_.begin(), state_.end(), [](const auto& item) {
      const StateValue& value = item.value();
      return value.is_shard() && value.tensor.is_cpu() && value.spec->mesh().device_type() != "cpu";
    });
    if (are_there && !device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }

  void check_key(const std::string& key, const StateValue& value) {
    const auto tensor = checkpoint_.tensors.find(key);
    const bool is_value = checkpoint_.values.contains(key);
    const auto unreadable = checkpoint_.unreadable.find(key);
    TORCH_CHECK_VALUE(unreadable == checkpoint_.unreadable.end(), "[cohort] the value \"", key,
                      "\" cannot be read: ", unreadable->second);
    if (tensor == checkpoint_.tensors.end() && !is_value) {
      report_.missing_keys.push_back(key);
      TORCH_CHECK(options_.allow_partial_load, "Missing key in checkpoint state_dict: ", key, ".", near_key(key),
                  "\n  hint: set allow_partial_load to keep what the checkpoint does not have");
      return;
    }
    TORCH_CHECK_VALUE(is_value != value.is_tensor(), "[cohort] \"", key, "\" is ", is_value ? "a value" : "a tensor",
                      " in the checkpoint, but ", is_value ? "a tensor" : "a value", " in the state");
    if (is_value) return;
    const std::vector<int64_t> shape = detail::global_shape(value);
    TORCH_CHECK_VALUE(tensor->second.shape == shape, "Size mismatch between saved ",
                      detail::torch_size(tensor->second.shape), " and current: ", detail::torch_size(shape), " for ",
                      key, "\n  hint: load it into a model of the same sizes; the number of ranks does not matter");
    detail::region_of(key, value);
  }

  std::string near_key(const std::string& key) const {
    std::vector<std::string> known;
    for (const auto& [name, tensor] : checkpoint_.tensors) known.push_back(name);
    for (const auto& [name, value] : checkpoint_.values) known.push_back(name);
    const auto near = base::closest_match(key, known);
    return near ? "\n  hint: did you mean \"" + *near + "\"?" : "";
  }

  void fill_tensor(const std::string& key, const StateValue& value, files::CheckpointReader& reader) const {
    const files::Region region = detail::region_of(key, value);
    const auto dtype = scalar_type(checkpoint_.tensors.at(key).dtype);
    const at::Tensor target = value.tensor.detach();
    const bool in_place = detail::is_plain(target, dtype);
    at::Tensor data = in_place ? target : at::empty(files::shape_of(region), at::TensorOptions().dtype(dtype));
    if (files::num_elements(region) == 0) return;
    comm::or_throw(reader.read(key, region, static_cast<char*>(data.mutable_data_ptr()), options_.verify));
    if (in_place) return value.tensor.unsafeGetTensorImpl()->bump_version();
    // A file may have any byte, but a bool in memory must be 0 or 1.
    if (dtype == at::kBool) data = data.view(at::kByte).ne(0);
    target.copy_(data);
  }

  ShardedStateDict& state_;
  const std::string path_;
  const LoadShardedOptions& options_;
  files::StoredCheckpoint checkpoint_;
  LoadReport report_;
};

std::set<std::string> all_keys(const std::vector<std::string>& checked) {
  std::set<std::string> keys;
  for (const std::string& text : checked) {
    for (const auto& key : nlohmann::json::parse(text)) keys.insert(key.get<std::string>());
  }
  return keys;
}

}  // namespace

LoadReport load_sharded(ShardedStateDict& state, const std::string& path, const LoadShardedOptions& options) {
  const auto ranks = detail::ranks_of(options.process_group, options.no_dist);
  const std::string what = "load_sharded: cannot load \"" + path + "\"";
  const comm::CalledFor purpose(parallel::kStateExchange);
  LoadSession session(state, path, options);
  const auto checked = ranks.all_done(what, comm::attempt([&] { return session.check(); }));
  // All ranks get the same result, so one reports it.
  const auto strict = comm::attempt([&] {
    if (options.strict) session.check_unexpected(all_keys(checked));
    return std::string();
  });
  if (!strict) {
    const comm::RankFailures failures = {{0, strict.error().describe()}};
    throw CheckpointException(what, failures, ranks.is_alone());
  }
  ranks.all_done(what, comm::attempt([&] { return session.fill(); }));
  return std::move(session.report());
}

}  // namespace cohort::checkpoint
