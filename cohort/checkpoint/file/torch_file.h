/// Files of Python's torch.save and torch.load (.pt, .pth), read without running any code that they name:
///
///     cohort::checkpoint::save(cohort::checkpoint::state_dict(*model), "model.pt");  // for torch.load("model.pt")
///     cohort::checkpoint::StateDict weights = cohort::checkpoint::load_tensors("model.pt");
///     c10::IValue run = cohort::checkpoint::load("run.pt", {.map_location = c10::Device(c10::kCPU)});
///     run.toGenericDict().at("epoch").toInt();
///
/// Values are those of comm::pickle: None, bool, int, float, complex, str, bytes, list, tuple, dict, and tensors. As in Python,
/// tensors that shared memory share it again, views are views, and a list, dict or tensor that was in two places is one object.
/// OrderedDicts, Counters and argparse's Namespaces become dicts, parameters become tensors that require gradients, torch.Size
/// becomes a tuple, a dtype its name as a str, and NumPy's scalars numbers. Attributes of tensors and hooks are dropped.
///
/// Thread-safety: functions of one path must not run at the same time, except two loads.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/checkpoint/optimizer/named_tensors.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// The devices to which tensors are loaded. Not set: where they were. A device: all to it. A table, {{"cuda:0", "cuda:1"}}:
/// devices outside of it stay. A function: maps the device in the file to the wanted one.
using MapLocation = std::variant<std::monostate, c10::Device, std::map<std::string, std::string>,
                                 std::function<c10::Device(const std::string& saved_on)>>;

/// Options of load and load_tensors.
struct LoadOptions {
  MapLocation map_location = {};
  /// Whether CPU tensors are views of the file in memory, which is read at their first use; writes to them do not change the
  /// file. If somebody truncates the file meanwhile, SIGBUS ends the program; save() replaces files, which does no harm.
  bool mmap = false;
  /// Whether to compare the data with the checksums in the file. Not with mmap, nor for files from before 1.6, which have none.
  bool check = false;
  /// load: whether a state dict's attribute _metadata becomes its last entry, "_metadata". If false, it is dropped.
  bool keep_metadata = false;
};

/// Reads zip files of every PyTorch since 1.6 and the older format. Corresponds to torch.load with weights_only=True.
/// Throws c10::Error, which names the file and the reason: it cannot be read, is damaged, refers to Python names that plain
/// values and tensors do not need, or to a device that does not exist.
COHORT_API c10::IValue load(const std::string& path, const LoadOptions& options = {});

/// Reads a file that holds one dict of tensors by name, such as a module's state dict. Throws as load.
COHORT_API StateDict load_tensors(const std::string& path, const LoadOptions& options = {});

struct SaveOptions {
  /// Whether the file is on the disk when save() returns. If false, it is in the system's memory, and a power cut may lose it.
  bool sync = true;
  /// For a StateDict: the versions of its modules by name, {{"", 1}, {"layer1", 1}}, written as Python's _metadata.
  std::vector<std::pair<std::string, int64_t>> versions = {};
  /// Whether dicts with an entry "_metadata", as load with keep_metadata returns them, become OrderedDicts with that attribute.
  bool metadata_entries = false;
};

/// Writes the same as torch.save: each storage once, views with their full storage, tensors on other devices with their device.
/// The file is complete or does not appear at all: it is written beside `path` and renamed. After a failure nothing is left, and
/// an existing file stays. Only its owner may read it.
/// Throws c10::ValueError, which names the place in the value, for what cannot be stored (undefined, sparse, quantized, strings
/// that are not UTF-8, objects, nesting deeper than 200); c10::Error if the disk reports an error.
COHORT_API void save(const c10::IValue& value, const std::string& path, const SaveOptions& options = {});
/// As above, as an OrderedDict.
COHORT_API void save(const StateDict& tensors, const std::string& path, const SaveOptions& options = {});

using TorchSaveOptions [[deprecated("use SaveOptions")]] = SaveOptions;

}  // namespace cohort::checkpoint
