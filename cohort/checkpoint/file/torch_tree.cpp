#include "cohort/checkpoint/file/torch_tree.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <unordered_map>
#include <utility>

#include "cohort/base/pickle/pickle_text.h"
#include "cohort/checkpoint/file/scalar_type.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/comm/pickle/pickle.h"

namespace cohort::checkpoint::detail {
namespace {

using base::PickleEntry;
using base::PickleValue;
using c10::IValue;

// A use of a storage, with its properties from the first use.
struct StorageUse {
  size_t key;
  c10::ScalarType dtype;
};

// Returns a view of all bytes of a storage.
at::Tensor bytes_of_storage(const c10::Storage& storage) {
  const auto num_bytes = static_cast<int64_t>(storage.nbytes());
  at::Tensor flat = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()));
  return flat.set_(storage, 0, {num_bytes}, {1});
}

class TreeMaker {
 public:
  explicit TreeMaker(const SaveOptions& options) : options_(options) {}

  PickleValue make(const IValue& value, int depth) {
    if (value.isTensor()) return make_tensor(value.toTensor());
    if (value.isNone()) return {};
    if (value.isBool()) return PickleValue::of_bool(value.toBool());
    if (value.isInt()) return PickleValue::of_int(value.toInt());
    if (value.isDouble()) return PickleValue::of_float(value.toDouble());
    if (value.isComplexDouble()) return PickleValue::of_complex(std::complex<double>(value.toComplexDouble()));
    if (value.isString()) return make_text(value.toStringRef());
    if (comm::is_bytes(value)) return PickleValue::of_bytes(comm::bytes_of(value));
    if (value.isDevice()) return make_device(value.toDevice());
    check(value.isList() || value.isTuple() || value.isGenericDict(),
          c10::str(
              "values of type ", value.tagKind(),
              " have no place in such a file; possible are None, bool, int, float, complex, str, bytes, list, tuple, "
              "dict, devices and tensors"));
    check(depth < base::kMaxPickleDepth, c10::str("it is nested deeper than ", base::kMaxPickleDepth));
    const void* const identity = value.internalToPointer();
    const auto known = made_.find(identity);
    if (known != made_.end()) return known->second;
    PickleValue made = make_container(value, depth);
    made_.emplace(identity, made);
    return made;
  }

  PickleValue make_state_dict(const StateDict& tensors) {
    std::vector<PickleEntry> entries;
    for (const auto& item : tensors) {
      const Step step(this, item.key());
      entries.push_back({make_text(item.key()), make_tensor(item.value())});
    }
    if (options_.versions.empty()) return files::pt_ordered_dict(std::move(entries));
    std::vector<PickleEntry> versions;
    for (const auto& [name, version] : options_.versions) {
      PickleValue one = PickleValue::dict({{PickleValue::of_text("version"), PickleValue::of_int(version)}});
      versions.push_back({make_text(name), std::move(one)});
    }
    PickleValue metadata = files::pt_ordered_dict(std::move(versions));
    return files::pt_ordered_dict(std::move(entries),
                                  PickleValue::dict({{PickleValue::of_text("_metadata"), metadata}}));
  }

  TorchTree finish(PickleValue root) {
    result_.root = std::move(root);
    for (const c10::Storage& storage : result_.kept) {
      result_.storages.push_back({.bytes = {static_cast<const char*>(storage.data()), storage.nbytes()}});
    }
    return std::move(result_);
  }

 private:
  // Adds a name to the path of the value, as long as it lives.
  class Step {
   public:
    Step(TreeMaker* maker, const std::string& name) : path_(&maker->path_), length_(path_->size()) {
      *path_ += (path_->empty() ? "" : ".") + name;
    }
    ~Step() { path_->resize(length_); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    std::string* path_;
    size_t length_;
  };

  void check(bool ok, const std::string& what) const {
    TORCH_CHECK_VALUE(ok, "[cohort] save: cannot write ", path_.empty() ? "the value" : "\"" + path_ + "\"", ": ",
                      what);
  }

  PickleValue make_text(const std::string& text) const {
    check(base::is_utf8(text), "a string is not UTF-8; use comm::bytes_value");
    return PickleValue::of_text(text);
  }

  static PickleValue make_device(c10::Device device) {
    std::vector<PickleValue> arguments{PickleValue::of_text(c10::DeviceTypeName(device.type(), /*lower_case=*/true))};
    if (device.has_index()) arguments.push_back(PickleValue::of_int(device.index()));
    return PickleValue::object({"torch", "device"}, std::move(arguments));
  }

  PickleValue make_container(const IValue& value, int depth) {
    if (value.isGenericDict()) return make_dict(value.toGenericDict(), depth);
    std::vector<PickleValue> items;
    const auto add = [&](const IValue& item) {
      const Step step(this, std::to_string(items.size()));
      items.push_back(make(item, depth + 1));
    };
    if (value.isTuple()) {
      for (const IValue& item : value.toTupleRef().elements()) add(item);
      return PickleValue::tuple(std::move(items));
    }
    const auto list = value.toList();
    for (size_t i = 0; i < list.size(); ++i) add(list.get(i));
    return PickleValue::list(std::move(items));
  }

  PickleValue make_dict(const c10::impl::GenericDict& dict, int depth) {
    std::vector<PickleEntry> entries;
    PickleValue metadata;
    for (const auto& entry : dict) {
      const bool is_name = entry.key().isString();
      const Step step(this, is_name ? entry.key().toStringRef() : c10::str(entry.key()));
      PickleValue value = make(entry.value(), depth + 1);
      const bool is_metadata = options_.metadata_entries && is_name && entry.key().toStringRef() == "_metadata";
      if (is_metadata) {
        metadata = std::move(value);
      } else {
        entries.push_back({make(entry.key(), depth + 1), std::move(value)});
      }
    }
    if (is_counter(dict)) {
      return PickleValue::object({"collections", "Counter"}, {PickleValue::dict(std::move(entries))});
    }
    if (metadata.is_none()) return PickleValue::dict(std::move(entries));
    return files::pt_ordered_dict(std::move(entries),
                                  PickleValue::dict({{PickleValue::of_text("_metadata"), metadata}}));
  }

  PickleValue make_tensor(const at::Tensor& tensor) {
    const auto known = made_.find(tensor.unsafeGetTensorImpl());
    if (known != made_.end()) return known->second;
    check(tensor.defined(), "the tensor is undefined");
    check(tensor.layout() == at::kStrided, "the tensor is sparse; write its indices() and values()");
    check(!tensor.is_quantized(), "the tensor is quantized; write its int_repr(), scale and zero point");
    check(!tensor.is_meta(), "the tensor is on the meta device and has no data");
    const auto dtype = file_dtype(tensor.scalar_type());
    check(dtype.has_value(), c10::str("tensors of dtype ", tensor.scalar_type(), " have no place in such a file"));
    const size_t key = add_storage(tensor);
    const auto sizes = tensor.sizes();
    const auto strides = tensor.strides();
    PickleValue made =
        files::pt_tensor({.key = std::to_string(key),
                          .dtype = *dtype,
                          .shape = {sizes.begin(), sizes.end()},
                          .strides = {strides.begin(), strides.end()},
                          .offset = tensor.storage_offset(),
                          .storage_elements = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size()),
                          .device = tensor.device().str(),
                          .requires_grad = tensor.requires_grad(),
                          .is_conjugate = tensor.is_conj(),
                          .is_negative = tensor.is_neg()});
    made_.emplace(tensor.unsafeGetTensorImpl(), made);
    return made;
  }

  size_t add_storage(const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    const auto [place, is_new] =
        uses_.try_emplace(storage.unsafeGetStorageImpl(), StorageUse{result_.kept.size(), tensor.scalar_type()});
    check(is_new || place->second.dtype == tensor.scalar_type(),
          c10::str("the tensor is of dtype ", tensor.scalar_type(), ", but another one in the same memory of ",
                   place->second.dtype, ", which the format cannot express; clone() one of them"));
    if (is_new) result_.kept.push_back(on_cpu(storage));
    return place->second.key;
  }

  static c10::Storage on_cpu(const c10::Storage& storage) {
    return storage.device().is_cpu() ? storage : bytes_of_storage(storage).cpu().storage();
  }

  const SaveOptions& options_;
  std::string path_;
  std::unordered_map<const void*, PickleValue> made_;  // by object identity
  std::unordered_map<const c10::StorageImpl*, StorageUse> uses_;
  TorchTree result_;
};

}  // namespace

TorchTree describe(const IValue& value, const SaveOptions& options) {
  TreeMaker maker(options);
  PickleValue root = maker.make(value, 0);
  return maker.finish(std::move(root));
}

TorchTree describe(const StateDict& tensors, const SaveOptions& options) {
  TreeMaker maker(options);
  PickleValue root = maker.make_state_dict(tensors);
  return maker.finish(std::move(root));
}

}  // namespace cohort::checkpoint::detail
