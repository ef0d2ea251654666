// Files of torch.save, as far as C++ alone can tell; tests/e2e/checkpoint/torch_file_test.py asks Python.
#include "cohort/checkpoint/file/torch_file.h"

#include <ATen/ATen.h>
#include <ATen/core/Dict.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "cohort/comm/pickle/pickle.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

using c10::IValue;
using test::error_text;

class TorchFile : public testing::Test {
 protected:
  test::TemporaryFolder folder;
  const std::string path = folder.file("x.pt");

  std::string save_error(const IValue& value) {
    return error_text<c10::ValueError>([&] { save(value, path); });
  }
};

c10::impl::GenericDict any_dict() { return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()); }

TEST_F(TorchFile, StateDictsReturnInTheirOrder) {
  StateDict tensors;
  tensors.insert("z", at::arange(6, at::kFloat).view({2, 3}).t());
  tensors.insert("a", tensors["z"][1]);
  tensors.insert("b", at::ones({2}, at::kBool));
  for (const bool mmap : {false, true}) {
    save(tensors, path);
    const StateDict loaded = load_tensors(path, {.mmap = mmap});
    EXPECT_EQ(loaded.keys(), tensors.keys());
    for (const auto& item : tensors) {
      const at::Tensor& tensor = *loaded.find(item.key());
      EXPECT_TRUE(at::equal(tensor, item.value())) << item.key();
      EXPECT_EQ(tensor.strides(), item.value().strides());
      EXPECT_FALSE(tensor.requires_grad());
    }
    loaded.find("z")->fill_(5);
    EXPECT_EQ(loaded.find("a")->sum().item<float>(), 10) << "shared memory";
  }
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(folder.num_files(), 1u);
}

// Writing to a mapped tensor changes neither the file nor what another load sees, and the mapping outlives everything else.
TEST_F(TorchFile, MappedTensorsAreCopiesOnWrite) {
  save(at::zeros({1 << 20}), path);
  at::Tensor mapped = load(path, {.mmap = true}).toTensor();
  mapped.fill_(3);
  EXPECT_EQ(load(path).toTensor().sum().item<float>(), 0);
  const at::Tensor view = mapped[7];
  mapped.reset();
  save(at::ones({2}), path);
  EXPECT_EQ(view.item<float>(), 3);
}

TEST_F(TorchFile, VersionsBecomeMetadata) {
  StateDict tensors;
  tensors.insert("w", at::ones({1}));
  save(tensors, path, {.versions = {{"", 1}, {"layer", 2}}});
  EXPECT_EQ(load(path).toGenericDict().size(), 1u);
  const auto metadata = load(path, {.keep_metadata = true}).toGenericDict().at("_metadata").toGenericDict();
  EXPECT_EQ(metadata.at("layer").toGenericDict().at("version").toInt(), 2);
  EXPECT_EQ(load_tensors(path).size(), 1u);
}

TEST_F(TorchFile, WhatCannotBeWrittenMessage) {
  auto dict = any_dict();
  auto inner = any_dict();
  dict.insert("optimizer", inner);
  const auto with = [&](const IValue& value) {
    inner.insert_or_assign("lr", value);
    return save_error(dict);
  };
  const std::string start = "[cohort] save: cannot write \"optimizer.lr\": ";
  EXPECT_EQ(with(at::Tensor()), start + "the tensor is undefined");
  EXPECT_EQ(with(at::eye(2).to_sparse()), start + "the tensor is sparse; write its indices() and values()");
  EXPECT_EQ(with(at::empty({2}, at::TensorOptions().device(at::kMeta))),
            start + "the tensor is on the meta device and has no data");
  EXPECT_EQ(with(std::string("\xff")), start + "a string is not UTF-8; use comm::bytes_value");
  const at::Tensor floats = at::ones({2});
  dict.insert("floats", floats);
  inner.insert_or_assign("lr", 1);
  dict.insert("bytes", floats.view(at::kByte));
  EXPECT_EQ(save_error(dict),
            "[cohort] save: cannot write \"bytes\": the tensor is of dtype Byte, but another one in the same memory of "
            "Float, "
            "which the format cannot express; clone() one of them");
  IValue deep(1);
  for (int i = 0; i < 300; ++i) deep = c10::ivalue::Tuple::create({deep});
  EXPECT_TRUE(save_error(deep).ends_with(": it is nested deeper than 200"));
}

TEST_F(TorchFile, NothingIsLeftWhereWritingFailsMessage) {
  const std::string missing = folder.file("missing") + "/x.pt";
  EXPECT_EQ(error_text<c10::Error>([&] { save(at::ones({1}), missing); }),
            "[cohort] save: cannot write \"" + missing + "\"\n  caused by: cannot create a file in \"" +
                folder.file("missing") +
                "\": No such file or directory (ENOENT)\n  hint: check that the folder exists and is writable");
  EXPECT_EQ(folder.num_files(), 0u);
}

TEST_F(TorchFile, OtherThanTensorsByNameMessage) {
  const auto error = [&](const IValue& value) {
    save(value, path);
    return error_text<c10::Error>([&] { load_tensors(path); });
  };
  const std::string start = "[cohort] load_tensors: \"" + path + "\" does not hold a single dict of tensors: ";
  const std::string hint = "\n  hint: call load(), which returns the whole value";
  EXPECT_EQ(error(at::ones({1})), start + "its value is of type Tensor" + hint);
  auto dict = any_dict();
  dict.insert("epoch", 3);
  EXPECT_EQ(error(dict), start + "\"epoch\" is of type int" + hint);
  dict = any_dict();
  dict.insert(1, at::ones({1}));
  EXPECT_EQ(error(dict), start + "a key is of type int" + hint);
  EXPECT_EQ(error_text<c10::Error>([&] { load(folder.file("none.pt")); }),
            "[cohort] load: cannot read \"" + folder.file("none.pt") + "\": No such file or directory (ENOENT)");
}

TEST_F(TorchFile, MapLocationChoosesByWhatTheFileSays) {
  save(at::ones({2}), path);
  EXPECT_TRUE(load(path, {.map_location = c10::Device(c10::kCPU)}).toTensor().is_cpu());
  std::string asked;
  const auto choose = [&](const std::string& saved_on) {
    asked = saved_on;
    return c10::Device(c10::kCPU);
  };
  load(path, {.map_location = choose});
  EXPECT_EQ(asked, "cpu");
  EXPECT_EQ(error_text<c10::Error>([&] {
              load(path, {.map_location = std::map<std::string, std::string>{{"cpu", "cuda:3"}}});
            }),
            "[cohort] load: tensors of \"" + path +
                "\" go to the device cuda:3, but this process has no cuda device\n"
                "  hint: give map_location = c10::Device(c10::kCPU) to have them on the CPU");
  EXPECT_EQ(error_text<c10::Error>([&] {
              load(path, {.map_location = std::map<std::string, std::string>{{"cpu", "toaster"}}});
            }),
            "[cohort] load: \"" + path +
                "\" has tensors for the device \"toaster\", which this LibTorch does not know\n"
                "  hint: give map_location, such as c10::Device(c10::kCPU)");
}

}  // namespace
}  // namespace cohort::checkpoint
