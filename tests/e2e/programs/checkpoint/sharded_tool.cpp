// sharded_tool: checkpoints for tests with Python on the other side.
//   save FOLDER                a known state, by all ranks: whole tensors, rows, columns, values
//   load PATH                  the same state from PATH, compared; prints "loaded"
//   consolidate PATH FILE, dcp PATH FOLDER, to_pt FOLDER FILE, from_pt FILE FOLDER, mapped FILE COPY
// An error ends it with 1 and the reason on standard error.
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <iostream>
#include <string>
#include <vector>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/sharded/convert.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/shard_spec.h"

namespace {

using namespace cohort;
using checkpoint::ShardedStateDict;
using checkpoint::StateValue;

at::Tensor numbers(std::vector<int64_t> shape, double first) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return (at::arange(count, at::kFloat) + first).view(shape);
}

StateValue part(const at::Tensor& whole, const DeviceMesh& mesh, int64_t dim) {
  const mesh::ShardSpec spec(mesh, {Shard(dim)}, whole.sizes().vec(), whole.scalar_type());
  const mesh::LocalShard local = spec.local_shard();
  return {whole.narrow(dim, std::min(local.offset[dim], whole.size(dim)), local.shape[dim]).clone(), spec};
}

ShardedStateDict known_state() {
  ShardedStateDict state;
  state.insert("model.whole", numbers({3, 4}, 100));
  state.insert("model.half", numbers({6}, 0.5).to(at::kBFloat16));
  state.insert("model.scalar", numbers({}, 7));
  state.insert("optim.step", StateValue(c10::IValue(3)));
  state.insert("optim.lr", StateValue(c10::IValue(0.1)));
  state.insert("optim.betas", StateValue(c10::IValue(c10::ivalue::Tuple::create({0.9, 0.999}))));
  state.insert("optim.name", StateValue(c10::IValue("é")));
  state.insert("optim.list", StateValue(c10::IValue(std::vector<int64_t>{1, 2})));
  const DeviceMesh mesh = init_device_mesh("cpu", {get_world_size()});
  state.insert("model.rows", part(numbers({5, 4}, 0), mesh, 0));
  state.insert("model.columns", part(numbers({4, 5}, 50), mesh, 1));
  return state;
}

void load(const std::string& path) {
  const ShardedStateDict expected = known_state();
  ShardedStateDict state = known_state();
  for (auto& item : state) {
    if (item.value().is_tensor()) {
      item.value().tensor.zero_();
    } else {
      item.value().value = c10::IValue();
    }
  }
  checkpoint::load_sharded(state, path);
  for (const auto& item : expected) {
    const StateValue& loaded = state[item.key()];
    const bool is_same = loaded.is_tensor() ? at::equal(loaded.tensor, item.value().tensor)
                                            : comm::pickle(loaded.value) == comm::pickle(item.value().value);
    TORCH_CHECK(is_same, item.key(), " differs");
  }
  std::cout << "loaded\n";
}

int run(const std::vector<std::string>& arguments) {
  const std::string& what = arguments.at(0);
  const std::string& from = arguments.at(1);
  const std::string to = arguments.size() > 2 ? arguments[2] : "";
  if (what == "save" || what == "load") {
    init_process_group("gloo");
    what == "save" ? checkpoint::save_sharded(known_state(), from, {.num_files = 2}) : load(from);
  } else if (what == "consolidate") {
    checkpoint::consolidate(from, to);
  } else if (what == "dcp") {
    checkpoint::convert_to_dcp(from, to);
  } else if (what == "to_pt") {
    checkpoint::dcp_to_torch_save(from, to);
  } else if (what == "from_pt") {
    checkpoint::torch_save_to_dcp(from, to);
  } else if (what == "mapped") {
    checkpoint::save_file(checkpoint::load_file(from, {.mmap = true}), to, checkpoint::load_metadata(from));
  } else {
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run({argv + 1, argv + argc}); } catch (const c10::Error& error) {
  std::cerr << error.what_without_backtrace() << '\n';
  return 1;
}
