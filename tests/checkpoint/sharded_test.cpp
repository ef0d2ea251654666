// Sharded checkpoints of one process.
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/checkpoint/sharded/async_save.h"
#include "cohort/checkpoint/sharded/convert.h"
#include "cohort/comm/pickle/pickle.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/require.h"

namespace cohort::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::TemporaryFolder;

c10::IValue reloaded(const c10::IValue& value) {
  const TemporaryFolder folder;
  ShardedStateDict state;
  state.insert("key", StateValue(value));
  save_sharded(state, folder.file("run"));
  state["key"] = StateValue(c10::IValue("something else"));
  load_sharded(state, folder.file("run"));
  return state["key"].value;
}

TEST(Sharded, PlainValuesComeBackExactly) {
  using Floats = std::vector<double>;
  for (const c10::IValue& value :
       {c10::IValue(), c10::IValue(true), c10::IValue(int64_t{INT64_MIN}), c10::IValue(0.1), c10::IValue(-0.0),
        c10::IValue(1e300), c10::IValue(5e-324), c10::IValue(3.0), c10::IValue(std::numeric_limits<double>::infinity()),
        c10::IValue("é\n\"\\"), c10::IValue(""), comm::bytes_value(std::string("\0\xff", 2)),
        c10::IValue(c10::complex<double>(0.5, -2)), c10::IValue(std::vector<int64_t>{1, 2}),
        c10::IValue(Floats{0.1, 2}), c10::IValue(c10::ivalue::Tuple::create({1, "x", c10::IValue()})),
        c10::IValue(c10::ivalue::Tuple::create({}))}) {
    EXPECT_EQ(comm::pickle(reloaded(value)), comm::pickle(value));
  }
  EXPECT_TRUE(std::isnan(reloaded(std::nan("")).toDouble()));
  EXPECT_TRUE(std::signbit(reloaded(-0.0).toDouble()));
  c10::impl::GenericDict dict(c10::IntType::get(), c10::AnyType::get());
  dict.insert(7, c10::ivalue::Tuple::create({0.9, 0.999}));
  dict.insert(-1, "b");
  EXPECT_EQ(comm::pickle(reloaded(dict)), comm::pickle(dict));
}

TEST(Sharded, EveryKindOfTensor) {
  const TemporaryFolder folder;
  ShardedStateDict state;
  state.insert("transposed", at::arange(6, at::kDouble).view({2, 3}).t());
  state.insert("bool", at::ones({3}, at::kBool));
  state.insert("bfloat16", at::ones({2, 2}, at::kBFloat16));
  state.insert("conj", at::ones({2}, at::kComplexFloat).mul(c10::complex<float>(1, 2)).conj());
  state.insert("grad", at::ones({2}).requires_grad_());
  save_sharded(state, folder.file("run"), {.metadata = {{"note", "x"}}});
  ShardedStateDict loaded;
  loaded.insert("transposed", at::zeros({2, 3}, at::kDouble).t());
  loaded.insert("bool", at::zeros({3}, at::kBool));
  loaded.insert("bfloat16", at::zeros({2, 2}));  // another dtype
  loaded.insert("conj", at::zeros({2}, at::kComplexFloat));
  loaded.insert("grad", at::zeros({2}).requires_grad_());
  const auto version = loaded["grad"].tensor._version();
  load_sharded(loaded, folder.file("run"));
  EXPECT_GT(loaded["grad"].tensor._version(), version);
  loaded["bfloat16"].tensor = loaded["bfloat16"].tensor.to(at::kBFloat16);
  for (const auto& item : state) EXPECT_TRUE(at::equal(loaded[item.key()].tensor, item.value().tensor)) << item.key();
}

TEST(Sharded, WideComplexNumbersLieAsPairs) {
  const TemporaryFolder folder;
  const auto pairs = at::arange(12, at::kDouble).view({2, 3, 2});
  ShardedStateDict state;
  state.insert("wide", at::view_as_complex(pairs));
  state.insert("turned", at::view_as_complex(pairs).t().conj());
  state.insert("scalar", at::view_as_complex(pairs)[1][2]);
  state.insert("pairs", pairs);
  save_sharded(state, folder.file("run"));
  // As other readers see them.
  const auto file = load_file(folder.file("run/model-00001-of-00001.safetensors"));
  EXPECT_TRUE(at::equal(file["wide"], pairs));
  EXPECT_TRUE(at::equal(file["scalar"], pairs[1][2]));
  ShardedStateDict loaded;
  loaded.insert("wide", at::zeros({2, 3}, at::kComplexDouble));
  loaded.insert("turned", at::zeros({3, 2}, at::kComplexFloat));
  loaded.insert("scalar", at::zeros({}, at::kComplexDouble));
  loaded.insert("pairs", at::zeros({2, 3, 2}, at::kDouble));
  load_sharded(loaded, folder.file("run"), {.strict = true});
  loaded["turned"].tensor = loaded["turned"].tensor.to(at::kComplexDouble);
  for (const auto& item : state) EXPECT_TRUE(at::equal(loaded[item.key()].tensor, item.value().tensor)) << item.key();
  consolidate(folder.file("run"), folder.file("one.pt"));
  EXPECT_TRUE(at::equal(load_tensors(folder.file("one.pt"))["wide"], at::view_as_complex(pairs)));
}

std::string load_problem(const ShardedStateDict& wanted, const std::string& path,
                         const LoadShardedOptions& options = {}) {
  ShardedStateDict state = wanted;
  const std::string text = error_of([&] { load_sharded(state, path, options); });
  const std::string begin = "[cohort] load_sharded: cannot load \"" + path + "\"\n  caused by: ";
  EXPECT_TRUE(text.starts_with(begin)) << text;
  return text.substr(begin.size());
}

TEST(Sharded, LoadingRefusalsMessage) {
  const TemporaryFolder folder;
  const std::string path = folder.file("run");
  ShardedStateDict state;
  state.insert("w", at::ones({2, 3}));
  state.insert("step", StateValue(c10::IValue(3)));
  save_sharded(state, path);
  ShardedStateDict wanted;
  wanted.insert("w", at::ones({3, 2}));
  EXPECT_EQ(load_problem(wanted, path),
            "Size mismatch between saved torch.Size([2, 3]) and current: torch.Size([3, 2]) for w\n"
            "  hint: load it into a model of the same sizes; the number of ranks does not matter");
  wanted["w"] = StateValue(c10::IValue(1));
  EXPECT_EQ(load_problem(wanted, path), "\"w\" is a tensor in the checkpoint, but a value in the state");
  wanted["w"] = at::ones({2, 3});
  EXPECT_EQ(load_problem(wanted, path, {.strict = true}),
            "Unexpected key(s) in checkpoint state_dict: \"step\".\n  hint: no rank's state has them; leave strict out "
            "to ignore them");
  load_sharded(wanted, path);
  EXPECT_EQ(load_problem(wanted, path + "/none"), "there is nothing at \"" + path + "/none\"");
}

TEST(Sharded, DamageIsFoundUnlessNotAskedFor) {
  const TemporaryFolder folder;
  ShardedStateDict state;
  state.insert("w", at::ones({1000}));
  save_sharded(state, folder.file("run"));
  const std::string name = "run/model-00001-of-00001.safetensors";
  std::string bytes = folder.read(name);
  bytes[bytes.size() - 50] ^= 4;
  folder.write(name, bytes);
  EXPECT_EQ(load_problem(state, folder.file("run")),
            "tensor \"w\": the bytes of [0:1000] do not match their checksum: the checkpoint is damaged");
  EXPECT_EQ(load_sharded(state, folder.file("run"), {.verify = false}).bytes_read, 4000u);
}

TEST(Sharded, SavingRefusalsMessage) {
  const TemporaryFolder folder;
  const std::string path = folder.file("run");
  const auto problem = [&](const StateValue& value, const SaveShardedOptions& options = {}) {
    ShardedStateDict state;
    state.insert("w", value);
    const std::string text = error_of([&] { save_sharded(state, path, options); });
    const std::string begin = "[cohort] save_sharded: cannot save \"" + path + "\"\n  caused by: ";
    EXPECT_TRUE(text.starts_with(begin)) << text;
    return text.substr(begin.size());
  };
  EXPECT_EQ(problem(at::ones({2}, at::kComplexHalf)),
            "tensor \"w\" is ComplexHalf, which the safetensors format does not know");
  c10::List<at::Tensor> tensors;
  tensors.push_back(at::ones({1}));
  EXPECT_THAT(problem(StateValue(c10::IValue(tensors))),
              testing::HasSubstr("hint: give tensors keys of their own, not a place in a list or dict"));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT(problem(at::ones({2}), {.num_files = 0}), testing::HasSubstr("num_files is at least 1, but got 0"));
  save_sharded(ShardedStateDict(), path);
  EXPECT_EQ(problem(at::ones({2}), {.overwrite = false}),
            "there is a checkpoint in \"" + path + "\" already\n  hint: give another folder, or set overwrite");
  folder.write("file", "");
  ShardedStateDict state;
  EXPECT_THAT(error_of([&] { save_sharded(state, folder.file("file/run")); }),
              testing::HasSubstr("Not a directory (ENOTDIR)"));
}

TEST(Sharded, AsyncOfOneProcess) {
  const TemporaryFolder folder;
  ShardedStateDict state;
  state.insert("t", at::arange(6, at::kFloat).view({2, 3}).t());
  state.insert("step", StateValue(c10::IValue(3)));
  AsyncSave save = async_save(state, folder.file("run"));
  state["t"].tensor.zero_();
  save.wait();
  load_sharded(state, folder.file("run"));
  EXPECT_EQ(state["t"].tensor[2][1].item<float>(), 5);
}

}  // namespace
}  // namespace cohort::checkpoint
