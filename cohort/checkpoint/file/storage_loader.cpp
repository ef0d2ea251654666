#include "cohort/checkpoint/file/storage_loader.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "cohort/base/machine/cpu.h"
#include "cohort/base/system/env.h"
#include "cohort/checkpoint/file/fresh_storages.h"
#include "cohort/checkpoint/file/mapped_tensors.h"
#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/files/input/private_mapping.h"
#include "cohort/files/tensors/pt/pt_reader.h"

namespace cohort::checkpoint::detail {
namespace {

using files::PtFile;
using files::PtStorage;
using files::RandomAccessFile;

constexpr int kMaxThreads = 4;

// The function and file that errors name.
struct LoadedFile {
  const char* function;
  const std::string& path;
};

c10::Device parse_device(const LoadedFile& file, const std::string& text) {
  try {
    return c10::Device(text);
  } catch (const c10::Error&) {
    comm::throw_error(base::Error("\"" + file.path + "\" has tensors for the device \"" + text +
                                  "\", which this LibTorch does not know")
                          .with_hint("give map_location, such as c10::Device(c10::kCPU)"),
                      file.function);
  }
}

void check_device(const LoadedFile& file, c10::Device device) {
  if (device.is_cpu() || device.is_meta()) return;
  const auto found = comm::accelerator();
  const std::string type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (!found || found->type != device.type()) {
    comm::throw_error(base::Error("tensors of \"" + file.path + "\" go to the device " + device.str() +
                                  ", but this process has no " + type + " device")
                          .with_hint("give map_location = c10::Device(c10::kCPU) to have them on the CPU"),
                      file.function);
  }
  if (device.index() < found->num_devices) return;
  comm::throw_error(base::Error("tensors of \"" + file.path + "\" go to the device " + device.str() +
                                ", but this process has " + std::to_string(found->num_devices) + " of them")
                        .with_hint("give map_location, such as {{\"" + device.str() + "\", \"" + type + ":0\"}}"),
                    file.function);
}

c10::Device wanted_device(const LoadedFile& file, const PtStorage& storage, const MapLocation& map) {
  if (const auto* device = std::get_if<c10::Device>(&map)) return *device;
  if (const auto* choose = std::get_if<std::function<c10::Device(const std::string&)>>(&map)) {
    return (*choose)(storage.device);
  }
  if (const auto* table = std::get_if<std::map<std::string, std::string>>(&map)) {
    const auto row = table->find(storage.device);
    if (row != table->end()) return parse_device(file, row->second);
  }
  return parse_device(file, storage.device);
}

// Warns if all ranks of a host load to the one device from which a rank has saved: they would fill it.
void warn_of_one_device(const LoadedFile& file, const std::vector<c10::Device>& devices, const MapLocation& map) {
  if (!std::holds_alternative<std::monostate>(map)) return;
  const auto other = std::find_if(devices.begin(), devices.end(), [](c10::Device device) { return !device.is_cpu(); });
  const auto local = base::env_int("LOCAL_WORLD_SIZE");
  if (other == devices.end() || !local || local->value_or(1) < 2) return;
  TORCH_WARN("[cohort] ", file.function, ": \"", file.path, "\" was saved from ", other->str(), ", and each of the ",
             **local,
             " ranks of this host loads it there\n  hint: give map_location, such as c10::Device(type, local_rank)");
}

// Whether the storage can be mapped. Bools that are neither 0 nor 1 are corrected in memory; other bytes are not touched here.
bool may_be_mapped(const PtFile& description, const PtStorage& storage) {
  const auto alignment = static_cast<uint64_t>(files::info_of(storage.element_dtype).size);
  return !description.is_big_endian && storage.num_bytes > 0 && storage.offset % alignment == 0;
}

c10::Storage on_device(const c10::Storage& storage, c10::Device device) {
  at::Tensor flat = at::empty({0}, at::TensorOptions().dtype(at::kByte));
  flat.set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
  return flat.to(device).storage();
}

}  // namespace

std::vector<c10::Storage> load_storages(const char* function, const RandomAccessFile& file, const PtFile& description,
                                        const LoadOptions& options) {
  const LoadedFile loaded{function, file.path()};
  std::vector<c10::Device> devices;
  for (const PtStorage& storage : description.storages) {
    devices.push_back(wanted_device(loaded, storage, options.map_location));
    check_device(loaded, devices.back());
  }
  warn_of_one_device(loaded, devices, options.map_location);
  std::shared_ptr<const files::PrivateMapping> mapping;
  if (options.mmap) {
    mapping = comm::or_throw(files::PrivateMapping::map(file), function);
  }
  const auto is_mapped = [&](const PtStorage& storage) { return mapping && may_be_mapped(description, storage); };
  std::vector<uint64_t> sizes;
  for (const PtStorage& storage : description.storages) sizes.push_back(is_mapped(storage) ? 0 : storage.num_bytes);
  std::vector<c10::Storage> storages = fresh_storages(sizes);
  std::vector<files::PtDestination> to_read;
  for (size_t i = 0; i < devices.size(); ++i) {
    const PtStorage& storage = description.storages[i];
    if (!is_mapped(storage)) {
      to_read.push_back({&storage, {static_cast<char*>(storages[i].mutable_data()), storage.num_bytes}});
      continue;
    }
    storages[i] =
        mapped_tensor(mapping, storage.offset, {static_cast<int64_t>(storage.num_bytes)}, at::kByte).storage();
    files::finish_pt_bytes(description, storage, mapping->bytes().subspan(storage.offset, storage.num_bytes));
  }
  comm::or_throw(
      files::read_pt_storages(file, description, to_read,
                              {.num_threads = std::min(base::available_cores(), kMaxThreads), .check = options.check}),
      function);
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].is_cpu()) storages[i] = on_device(storages[i], devices[i]);
  }
  return storages;
}

}  // namespace cohort::checkpoint::detail
