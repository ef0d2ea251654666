/// Files of Python's torch.save and torch.load (.pt, .pth), without running anything of what they say:
///
///     cohort::checkpoint::save(cohort::checkpoint::state_dict(*model), "model.pt");  // for torch.load("model.pt")
///     cohort::checkpoint::StateDict weights = cohort::checkpoint::load_tensors("model.pt");
///     c10::IValue run = cohort::checkpoint::load("run.pt", {.map_location = c10::Device(c10::kCPU)});
///     run.toGenericDict().at("epoch").toInt();
///
/// Values are those of comm::pickle: None, bool, int, float, complex, str, bytes, list, tuple, dict, and tensors. As in Python,
/// tensors that shared memory share it again, views are views, and what was one list, dict or tensor in two places is one.
/// OrderedDicts, Counters and argparse's Namespaces become dicts, parameters tensors that require gradients, torch.Size a tuple,
/// a dtype its name as a str, NumPy's scalars numbers, attributes of tensors and hooks stay behind.
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

#include "cohort/checkpoint/state/named_tensors.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// Where tensors go: nothing, to where they were; a device, all of them there; a table such as {{"cuda:0", "cuda:1"}}, what is
/// not in it to where it was; a function from the device that the file names to the one that is wanted.
using MapLocation = std::variant<std::monostate, c10::Device, std::map<std::string, std::string>,
                                 std::function<c10::Device(const std::string& saved_on)>>;

struct LoadOptions {
  MapLocation map_location = {};
  /// Tensors on the CPU are views of the file in memory, which is read where they are touched; writing to them does not change
  /// the file. Whoever shortens the file meanwhile ends the program (SIGBUS); save() replaces files, which does no harm.
  bool mmap = false;
  /// Compares what is read with the checksums in the file; not together with mmap, nor for files of before 1.6, which have none.
  bool check = false;
  /// A state dict's attribute _metadata becomes its last entry, "_metadata". Otherwise it stays behind.
  bool keep_metadata = false;
};

/// Reads zip files of every PyTorch since 1.6 and the older ones. Python's torch.load with weights_only=True.
/// Throws c10::Error, which names the file and the reason: it cannot be read, is damaged, refers to Python names that plain
/// values and tensors are not made with, or to a device that is not there.
COHORT_API c10::IValue load(const std::string& path, const LoadOptions& options = {});

/// A file that holds one dict of tensors by name, such as a module's state dict. Throws as load.
COHORT_API StateDict load_tensors(const std::string& path, const LoadOptions& options = {});

struct TorchSaveOptions {
  /// The file is on the disk when save() returns. Otherwise it is in the system's memory, and a power cut may lose it.
  bool sync = true;
  /// Of a StateDict: the versions of its modules by their names, {{"", 1}, {"layer1", 1}}, written as Python's _metadata.
  std::vector<std::pair<std::string, int64_t>> versions = {};
  /// Dicts with an entry "_metadata", as load with keep_metadata gives them, become OrderedDicts with that attribute again.
  bool metadata_entries = false;
};

/// Writes what torch.save would: storages once, views with the whole storage they lie in, tensors of other devices with their
/// device. The file appears whole or not at all: it is written beside `path` and renamed; on failure nothing is left and a file
/// that was there before stays. Only its owner may read it.
/// Throws c10::ValueError, which says where in the value, for what cannot be stored (undefined, sparse, quantized, strings that
/// are not UTF-8, objects, nesting deeper than 200); c10::Error when the disk refuses.
COHORT_API void save(const c10::IValue& value, const std::string& path, const TorchSaveOptions& options = {});
/// As an OrderedDict.
COHORT_API void save(const StateDict& tensors, const std::string& path, const TorchSaveOptions& options = {});

}  // namespace cohort::checkpoint
