// Datasets on array files. What the readers beneath them refuse is tested in tests/extras/files/arrays.
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "cohort/data/loader/data_loader.h"
#include "cohort/extras/data/datasets/csv_dataset.h"
#include "cohort/extras/data/datasets/idx_dataset.h"
#include "cohort/extras/data/datasets/numpy_dataset.h"
#include "cohort/extras/data/datasets/numpy_files.h"
#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

namespace fs = std::filesystem;
using test::error_text;
using testing::ElementsAre;

class ArrayDatasets : public testing::Test {
 protected:
  ArrayDatasets() {
    std::string name = (fs::temp_directory_path() / "cohort_array_datasets_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ArrayDatasets() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return path(name);
  }
  std::string save(const std::string& name, const at::Tensor& tensor) const {
    save_npy(path(name), tensor);
    return path(name);
  }

  fs::path folder_;
};

std::string idx_of(const std::vector<uint8_t>& lengths, const std::string& elements) {
  std::string bytes = {0, 0, 8, static_cast<char>(lengths.size())};
  for (const uint8_t length : lengths) bytes += {0, 0, 0, static_cast<char>(length)};
  return bytes + elements;
}

TEST_F(ArrayDatasets, NpyIsReadAsItWasSaved) {
  for (const at::ScalarType type :
       {at::kBool, at::kByte, at::kChar, at::kUInt16, at::kShort, at::kUInt32, at::kInt, at::kUInt64, at::kLong,
        at::kHalf, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
    const at::Tensor tensor = at::arange(6).view({2, 3}).to(type);
    const at::Tensor loaded = load_npy(save("a.npy", tensor));
    EXPECT_EQ(loaded.scalar_type(), type);
    EXPECT_EQ(loaded.sizes(), tensor.sizes());
    EXPECT_EQ(std::memcmp(loaded.const_data_ptr(), tensor.const_data_ptr(), tensor.nbytes()), 0) << type;
  }
  const at::Tensor strided = at::arange(12).view({3, 4}).t();
  EXPECT_TRUE(load_npy(save("a.npy", strided)).equal(strided));
  EXPECT_EQ(load_npy(save("a.npy", at::tensor(7).squeeze())).dim(), 0);
}

TEST_F(ArrayDatasets, ViewsOfComplexNumbersAreSavedAsTheyLook) {
  const at::Tensor numbers = at::tensor({c10::complex<float>(1, 2), c10::complex<float>(3, -4)});
  EXPECT_TRUE(load_npy(save("a.npy", numbers.conj())).equal(numbers.conj().resolve_conj()));
}

TEST_F(ArrayDatasets, WhatNumPyLacksMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([&] { save_npy(path("a.npy"), at::arange(3).to(at::kBFloat16)); }),
            "[cohort] NumPy has no type for a tensor of BFloat16\n  hint: convert it first, for example with "
            "tensor.to(at::kFloat)");
  EXPECT_FALSE(fs::exists(path("a.npy")));
}

TEST_F(ArrayDatasets, NumpyGivesRowsAndWholeBatches) {
  const at::Tensor images = at::arange(24).to(at::kFloat).view({4, 2, 3});
  const at::Tensor labels = at::tensor({5, 6, 7, 8}, at::kLong);
  const NumpyDataset dataset(save("x.npy", images), save("y.npy", labels));
  EXPECT_EQ(dataset.size(), 4);
  EXPECT_TRUE(std::get<0>(dataset.get(2)).equal(images[2]));
  EXPECT_EQ(std::get<1>(dataset.get(2)).item<int64_t>(), 7);
  const auto [batch, batch_labels] = dataset.get_batch({3, 0, 3});
  EXPECT_TRUE(batch.equal(at::stack({images[3], images[0], images[3]})));
  EXPECT_TRUE(batch_labels.equal(at::tensor({8, 5, 8}, at::kLong)));
  int64_t num_rows = 0;
  DataLoader loader(dataset, {.batch_size = 3, .num_workers = 2});
  for (auto& [x, y] : loader) {
    EXPECT_TRUE(x.equal(images.narrow(0, num_rows, x.size(0))));
    num_rows += y.size(0);
  }
  EXPECT_EQ(num_rows, 4);
}

TEST_F(ArrayDatasets, NumpyMessages) {
  const std::string x = save("x.npy", at::arange(12).view({4, 3}));
  EXPECT_EQ(error_text<c10::ValueError>([&] { NumpyDataset(x, save("y.npy", at::arange(5))); }),
            "[cohort] Size mismatch between arrays: array 0 has 4 rows, array 1 has 5");
  const NumpyDataset dataset(x);
  for (const int64_t index : {-1, 4}) {
    EXPECT_EQ(error_text<c10::IndexError>([&] { dataset.get(index); }),
              "[cohort] example " + std::to_string(index) + " is out of range for \"" + x + "\", which has 4 rows");
  }
  fs::resize_file(x, 130);
  EXPECT_EQ(
      error_text<c10::Error>([&] { dataset.get(0); }),
      "[cohort] \"" + x +
          "\", at byte 130: expected 22 more bytes of int64 elements, but found the end of the file, which had 224 "
          "bytes when it was opened: it has been shortened while it was read");
  EXPECT_EQ(error_text<c10::ValueError>([&] { NumpyDataset(save("z.npy", at::tensor(1).squeeze())); }),
            "[cohort] \"" + path("z.npy") +
                "\" holds one number, but a NumpyDataset needs arrays with at least one dimension");
}

TEST_F(ArrayDatasets, MnistReadsTorchvisionsLayout) {
  for (const auto& [name, first] : {std::pair("MNIST", 'a'), {"FashionMNIST", 'n'}, {"KMNIST", 'A'}}) {
    std::string pixels;
    for (char i = 0; i < 12; ++i) pixels += static_cast<char>(first + i);
    write(std::string(name) + "/raw/train-images-idx3-ubyte", idx_of({3, 2, 2}, pixels));
    write(std::string(name) + "/raw/train-labels-idx1-ubyte", idx_of({3}, "\x07\x09\xff"));
    write(std::string(name) + "/raw/t10k-images-idx3-ubyte", idx_of({1, 2, 2}, "WXYZ"));
    write(std::string(name) + "/raw/t10k-labels-idx1-ubyte", idx_of({1}, "\x03"));
  }
  const MNIST train(folder_.string());
  EXPECT_EQ(train.size(), 3);
  const auto [image, label] = train.get(1);
  EXPECT_TRUE(image.equal(at::tensor({'e', 'f', 'g', 'h'}, at::kByte).view({1, 2, 2})));
  EXPECT_EQ(label, 9);
  const auto [images, labels] = train.get_batch({2, 0});
  EXPECT_TRUE(images.equal(at::tensor({'i', 'j', 'k', 'l', 'a', 'b', 'c', 'd'}, at::kByte).view({2, 1, 2, 2})));
  EXPECT_TRUE(labels.equal(at::tensor({255, 7}, at::kLong)));
  EXPECT_EQ(MNIST(folder_.string(), {.train = false}).get(0).second, 3);
  EXPECT_EQ(FashionMNIST(folder_.string()).images()[0][0][0][0].item<int>(), 'n');
  EXPECT_EQ(KMNIST(folder_.string()).images()[0][0][0][0].item<int>(), 'A');
  EXPECT_EQ(error_text<c10::IndexError>([&] { train.get(3); }),
            "[cohort] example 3 is out of range for an IdxDataset of 3 examples");
}

TEST_F(ArrayDatasets, MnistAndItsRelativesAreDownloadedIfTheyAreNotThere) {
  setenv("https_proxy", "http://127.0.0.1:1", 1);  // where nobody answers
  setenv("http_proxy", "http://127.0.0.1:1", 1);
  const auto message = [&](auto make) { return error_text<c10::Error>(make); };
  const auto begin = [&](const std::string& set) {
    return testing::StartsWith("[cohort] cannot fetch " + set + " into \"" + folder_.string() + "\"");
  };
  EXPECT_THAT(message([&] { MNIST(folder_.string(), {.download = true}); }), begin("mnist"));
  EXPECT_THAT(message([&] { FashionMNIST(folder_.string(), {.download = true}); }), begin("fashion-mnist"));
  EXPECT_THAT(message([&] { KMNIST(folder_.string(), {.download = true}); }), begin("kmnist"));
  write("MNIST/raw/train-images-idx3-ubyte", idx_of({1, 1, 1}, "a"));
  write("MNIST/raw/train-labels-idx1-ubyte", idx_of({1}, "b"));
  EXPECT_EQ(MNIST(folder_.string(), {.download = true}).size(), 1);
  unsetenv("https_proxy");
  unsetenv("http_proxy");
}

TEST_F(ArrayDatasets, IdxMessages) {
  const std::string stem = path("MNIST/raw/t10k-images-idx3-ubyte");
  EXPECT_EQ(
      error_text<c10::Error>([&] { MNIST(folder_.string(), {.train = false}); }),
      "[cohort] MNIST is not there: neither \"" + stem +
          "\" nor the same with .gz exists\n  hint: set .download = true, or run: cohort-data fetch mnist --root " +
          folder_.string());
  const std::string images = write("images", idx_of({2, 1, 1}, "ab"));
  const std::string labels = write("labels", idx_of({3}, "abc"));
  EXPECT_EQ(error_text<c10::ValueError>([&] { IdxDataset(images, labels); }),
            "[cohort] \"" + images + "\" has 2 images, but \"" + labels + "\" has 3 labels");
  EXPECT_EQ(error_text<c10::ValueError>([&] { IdxDataset(images, images); }),
            "[cohort] \"" + images + "\" has 3 dimensions, but labels have one");
}

TEST_F(ArrayDatasets, CsvTakesColumnsByName) {
  const std::string file = write("a.csv", "x,kind,y,z\n1,pear,2.5,10\n3,apple,4.5,20\n5,pear,6.5,30\n");
  const CsvDataset numbers(file, {.features = {"y", "x"}, .labels = {"z"}});
  EXPECT_EQ(numbers.size(), 3);
  EXPECT_TRUE(numbers.get(1).first.equal(at::tensor({4.5, 3.0}, at::kFloat)));
  EXPECT_TRUE(numbers.get(1).second.equal(at::tensor(20, at::kLong).squeeze()));
  const auto [features, labels] = numbers.get_batch({2, 0});
  EXPECT_TRUE(features.equal(at::tensor({6.5, 5.0, 2.5, 1.0}, at::kFloat).view({2, 2})));
  EXPECT_TRUE(labels.equal(at::tensor({30, 10}, at::kLong)));

  const CsvDataset kinds(file, {.labels = {"kind"}, .label_type = CsvLabelType::kClassNames, .dtype = at::kDouble});
  EXPECT_THAT(kinds.feature_names(), ElementsAre("x", "y", "z"));
  EXPECT_THAT(kinds.classes(), ElementsAre("apple", "pear"));
  EXPECT_TRUE(kinds.labels().equal(at::tensor({1, 0, 1}, at::kLong)));
  EXPECT_EQ(kinds.features().scalar_type(), at::kDouble);
  const CsvDataset several(file, {.features = {"x"}, .labels = {"z", "y"}, .label_type = CsvLabelType::kNumber});
  EXPECT_TRUE(several.get(2).second.equal(at::tensor({30.0, 6.5}, at::kFloat)));
  EXPECT_EQ(CsvDataset(file, {.features = {"x"}}).labels().sizes(), (std::vector<int64_t>{3, 0}));
}

TEST_F(ArrayDatasets, CsvReadsManyRows) {
  std::string text = "a,b\n";
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i) + "," + std::to_string(i * 3) + "\n";
  const CsvDataset dataset(write("a.csv", text), {.labels = {"b"}});
  EXPECT_TRUE(dataset.features().equal(at::arange(20'000).to(at::kFloat).view({-1, 1})));
  EXPECT_TRUE(dataset.labels().equal(at::arange(0, 60'000, 3)));
  EXPECT_EQ(CsvDataset(write("b.csv", "a,b\n"), {.labels = {"b"}}).size(), 0);
}

TEST_F(ArrayDatasets, CsvStreamGivesTheRowsOfTheFile) {
  const std::string file = write("a.csv", "x,y\n1,2\n3,4\n5,6\n");
  const CsvStream stream(file, {.labels = {"y"}});
  for (int pass = 0; pass < 2; ++pass) {
    auto rows = stream.iterate();
    for (int64_t row = 0; row < 3; ++row) {
      const auto example = rows.next();
      ASSERT_TRUE(example.has_value());
      EXPECT_TRUE(example->first.equal(at::tensor({2.0 * static_cast<double>(row) + 1}, at::kFloat)));
      EXPECT_EQ(example->second.item<int64_t>(), 2 * row + 2);
    }
    EXPECT_FALSE(rows.next().has_value());
  }
  std::vector<int64_t> seen;
  DataLoader loader(CsvStream(file, {.labels = {"y"}}), {.batch_size = 2});
  for (auto& [features, labels] : loader) {
    for (int64_t i = 0; i < labels.size(0); ++i) seen.push_back(labels[i].item<int64_t>());
  }
  EXPECT_THAT(seen, ElementsAre(2, 4, 6));
}

TEST_F(ArrayDatasets, CsvMessages) {
  const std::string file = write("a.csv", "x,kind\n1,pear\n1e39,plum\n");
  const auto message = [&](const CsvOptions& options) {
    return error_text<c10::Error>([&] { CsvDataset(file, options); });
  };
  EXPECT_EQ(message({}), "[cohort] \"" + file + "\", line 2, column \"kind\": expected a number, but found \"pear\"");
  EXPECT_EQ(
      message({.features = {"x"}}),
      "[cohort] \"" + file + "\", line 3, column \"x\": expected a number that fits into 32 bits, but found \"1e39\"");
  EXPECT_EQ(CsvDataset(file, {.features = {"x"}, .dtype = at::kDouble}).size(), 2);
  EXPECT_EQ(message({.features = {}, .labels = {"kin"}}),
            "[cohort] \"" + file + "\" has no column \"kin\" (did you mean \"kind\"?), but 2: \"x\", \"kind\"");
  const CsvOptions with_classes = {
      .labels = {"kind"}, .label_type = CsvLabelType::kClassNames, .classes = {"pear"}, .dtype = at::kDouble};
  EXPECT_EQ(
      message(with_classes),
      "[cohort] \"" + file + "\", line 3, column \"kind\": expected one of the given classes, but found \"plum\"");
  EXPECT_EQ(
      error_text<c10::ValueError>(
          [&] { CsvStream(file, {.labels = {"kind"}, .label_type = CsvLabelType::kClassNames}); }),
      "[cohort] a CsvStream cannot know the classes before it has read the file\n  hint: set CsvOptions::classes");
}

}  // namespace
}  // namespace cohort::data
