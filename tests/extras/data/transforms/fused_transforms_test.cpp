#include "cohort/extras/data/transforms/fused_transforms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/extras/data/transforms/to_tensor.h"
#include "cohort/extras/data/transforms/transformed_dataset.h"
#include "tests/data/error_text.h"
#include "tests/extras/data/transforms/images.h"

namespace cohort::data {
namespace {

using test::error_text;
using test::noise;

// No transform that a Compose knows, but what `transform` does.
Transform hidden(const Transform& transform) {
  return [transform](const at::Tensor& image, SampleRandom& random) { return transform(image, random); };
}

std::vector<Transform> all_hidden(const std::vector<Transform>& transforms) {
  std::vector<Transform> result;
  for (const Transform& transform : transforms) result.push_back(hidden(transform));
  return result;
}

// The image, or what went wrong; and the next random number.
std::pair<std::optional<at::Tensor>, std::string> outcome(const Compose& compose, const at::Tensor& image, int64_t i) {
  SampleRandom random(3, 0, i);
  try {
    at::Tensor result = compose(image, random);
    return {result, std::to_string(random.bits())};
  } catch (const c10::Error& error) {
    return {std::nullopt, error.what_without_backtrace()};
  } catch (const std::exception& error) {  // a fill that is no byte
    return {std::nullopt, error.what()};
  }
}

void expect_same(const std::vector<Transform>& transforms, const at::Tensor& image, int64_t i) {
  const auto [actual, actual_text] = outcome(Compose(transforms), image, i);
  const auto [expected, expected_text] = outcome(Compose(all_hidden(transforms)), image, i);
  EXPECT_EQ(actual_text, expected_text);
  ASSERT_EQ(actual.has_value(), expected.has_value());
  if (!actual) return;
  EXPECT_EQ(actual->scalar_type(), expected->scalar_type());
  ASSERT_EQ(actual->sizes(), expected->sizes());
  EXPECT_TRUE(actual->equal(*expected));
}

const std::map<std::string, Transform>& known_transforms() {
  static const std::map<std::string, Transform> transforms{
      {"crop", RandomCrop({9, 7})},
      {"padded crop", RandomCrop(11, {.padding = {4}})},
      {"uneven crop", RandomCrop({12, 10}, {.padding = {5, 1, 0, 2}, .fill = 77})},
      {"crop of what is too small", RandomCrop({14, 15}, {.pad_if_needed = true, .fill = 1})},
      {"crop of both", RandomCrop({15, 14}, {.padding = {1, 0}, .pad_if_needed = true})},
      {"mirrored crop", RandomCrop(12, {.padding = {2}, .padding_mode = PaddingMode::kReflect})},
      {"fill that is no byte", RandomCrop(12, {.padding = {2}, .fill = 300})},
      {"half a fill", RandomCrop(12, {.padding = {2}, .fill = 0.5})},
      {"center", CenterCrop({8, 13})},
      {"odd center", CenterCrop({7, 6})},
      {"horizontal", RandomHorizontalFlip()},
      {"vertical", RandomVerticalFlip(0.6)},
      {"to tensor", ToTensor()},
      {"normalize", Normalize({0.4914, 0.4822, 0.4465}, {0.247, 0.2435, 0.2616})},
      {"normalize alike", Normalize({0.5}, {0.25})},
      {"mixed normalize", Normalize({0.5, 0.4, 0.3}, {0.25})},
      {"normalize two channels", Normalize({0.5, 0.4}, {0.25, 0.3})},
      {"unknown", hidden(RandomHorizontalFlip())}};
  return transforms;
}

TEST(FusedTransforms, GiveBitForBitWhatTheSingleOnesDo) {
  const at::Tensor interleaved = noise(11, 10, 3, 1).permute({2, 0, 1});
  const at::Tensor part = noise(3, 20, 20, 2).narrow(1, 3, 10).narrow(2, 5, 12);
  const std::vector<at::Tensor> images{noise(3, 10, 11), interleaved, part, noise(1, 10, 12),
                                       noise(3, 10, 11).to(at::kFloat) / 255};
  std::vector<std::string> names;
  for (const auto& [name, transform] : known_transforms()) names.push_back(name);
  SampleRandom choice(0, 0, 0);
  for (int64_t i = 0; i < 3000; ++i) {
    std::vector<Transform> transforms;
    std::string list;
    const auto add = [&](const std::string& name) {
      transforms.push_back(known_transforms().at(name));
      list += name + "; ";
    };
    const int64_t count = choice.integer(1, 6);
    for (int64_t k = 0; k < count; ++k) add(names[static_cast<size_t>(choice.integer(0, std::ssize(names)))]);
    if (choice.chance(0.7)) add("to tensor");
    if (choice.chance(0.5)) add("normalize");
    const auto which = static_cast<size_t>(choice.integer(0, std::ssize(images)));
    SCOPED_TRACE(list + "of image " + std::to_string(which) + ", sample " + std::to_string(i));
    expect_same(transforms, images[which], i);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(FusedTransforms, EveryByteOfEveryChannel) {
  const at::Tensor image = at::arange(256, at::kByte).view({1, 16, 16}).expand({3, 16, 16}).contiguous();
  for (int64_t i = 0; i < 4; ++i) {
    expect_same({RandomVerticalFlip(), ToTensor(), Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225})}, image, i);
  }
}

TEST(FusedTransforms, BeginWhereTheyCan) {
  const auto first = [](const std::vector<std::string>& names) {
    std::vector<Transform> transforms;
    for (const auto& name : names) transforms.push_back(known_transforms().at(name));
    const auto fused = FusedTransforms::at_end_of(transforms);
    return fused ? static_cast<int64_t>(fused->first()) : -1;
  };
  EXPECT_EQ(first({"padded crop", "horizontal", "to tensor", "normalize"}), 0);
  EXPECT_EQ(first({"to tensor", "vertical", "crop", "center"}), 0);
  EXPECT_EQ(first({"crop", "unknown", "crop of both", "to tensor", "normalize alike"}), 2);
  EXPECT_EQ(first({"padded crop", "uneven crop", "to tensor"}), 1);  // two paddings
  EXPECT_EQ(first({"center", "horizontal", "uneven crop", "to tensor"}), 1);
  EXPECT_EQ(first({"vertical", "mirrored crop", "horizontal", "to tensor"}), 2);
  EXPECT_EQ(first({"normalize", "horizontal", "to tensor"}), 1);
  EXPECT_EQ(first({"horizontal", "normalize"}), -1);  // no bytes
  EXPECT_EQ(first({"horizontal", "crop"}), -1);
  EXPECT_EQ(first({"to tensor", "unknown"}), -1);
  EXPECT_EQ(first({"to tensor", "normalize", "normalize two channels"}), -1);
  EXPECT_EQ(first({"fill that is no byte", "to tensor"}), -1);
  EXPECT_EQ(first({"to tensor", "fill that is no byte"}), 0);
  EXPECT_EQ(first({}), -1);
}

struct Batches {
  std::vector<at::Tensor> images;
  std::vector<at::Tensor> labels;
};

template <typename Dataset>
Batches transformed_batches_of(const Dataset& dataset, DataLoaderOptions options = {}) {
  options.batch_size = 6;
  const DataLoader loader(dataset, std::move(options));
  Batches result;
  for (auto& batch : loader) {
    result.images.push_back(std::get<0>(batch));
    result.labels.push_back(std::get<1>(batch));
  }
  return result;
}

// What a loader gives is what collate() makes of get(), in a loader that has a collate function of its own.
template <typename Dataset>
void expect_batches_like_get(const Dataset& dataset) {
  for (const int num_workers : {0, 2}) {
    const Batches actual = transformed_batches_of(dataset, {.num_workers = num_workers});
    for (size_t i = 0; i < actual.images.size(); ++i) {
      std::vector<at::Tensor> images;
      std::vector<at::Tensor> labels;
      for (int64_t row = 0; row < actual.images[i].size(0); ++row) {
        const auto example = dataset.get(static_cast<int64_t>(6 * i) + row);
        images.push_back(std::get<0>(example));
        labels.push_back(at::scalar_tensor(at::Scalar(std::get<1>(example)), actual.labels[i].options()));
      }
      EXPECT_TRUE(actual.images[i].is_contiguous());
      EXPECT_TRUE(actual.images[i].equal(at::stack(images)));
      EXPECT_TRUE(actual.labels[i].equal(at::stack(labels)));
    }
    EXPECT_EQ(actual.images.size(), 4U);
    EXPECT_EQ(actual.images.back().size(0), 2);
  }
}

struct NumberedPictures {
  int64_t size() const { return 20; }
  std::pair<at::Tensor, int64_t> get(int64_t index) const {
    TORCH_CHECK(index != unreadable, "picture ", index, " is torn");
    return {noise(3, index == odd_one ? 13 : 12, 12, static_cast<uint64_t>(index)), 10 * index};
  }
  int64_t unreadable = -1;
  int64_t odd_one = -1;
};

const Compose& usual() {
  static const Compose compose({RandomCrop(12, {.padding = {2}}), RandomHorizontalFlip(), ToTensor(),
                                Normalize({0.4, 0.5, 0.6}, {0.2, 0.3, 0.4})});
  return compose;
}

TEST(TransformedDataset, BatchesAreWhatGetGives) {
  expect_batches_like_get(TransformedDataset(NumberedPictures(), usual()));
  expect_batches_like_get(TransformedDataset(NumberedPictures(), Compose({hidden(ToTensor())})));
  expect_batches_like_get(TransformedDataset(NumberedPictures(), Compose({RandomHorizontalFlip()})));  // bytes
  expect_batches_like_get(
      TransformedDataset(NumberedPictures(), Compose({hidden(RandomHorizontalFlip()), ToTensor()})));
}

struct LabeledRows : TensorDataset<2> {
  LabeledRows() : TensorDataset<2>(pictures(), at::arange(20) * 7) {}
  static at::Tensor pictures() {
    std::vector<at::Tensor> images;
    for (uint64_t i = 0; i < 20; ++i) images.push_back(noise(3, 12, 14, i));
    return at::stack(images);
  }
  std::tuple<at::Tensor, int64_t> get(int64_t index) const {
    auto [image, label] = TensorDataset<2>::get(index);
    return {image, label.item<int64_t>()};
  }
};

TEST(TransformedDataset, BatchesOfRowsAreWhatGetGives) {
  expect_batches_like_get(TransformedDataset(LabeledRows(), usual()));
  expect_batches_like_get(TransformedDataset(LabeledRows(), Compose({ToTensor(), hidden(RandomHorizontalFlip())})));
  expect_batches_like_get(TransformedDataset(LabeledRows(), Compose({hidden(RandomHorizontalFlip()), ToTensor()})));
}

TEST(TransformedDataset, BatchesOfImagesAlone) {
  struct Images {
    int64_t size() const { return 5; }
    at::Tensor get(int64_t index) const { return noise(3, 12, 12, static_cast<uint64_t>(index)); }
  };
  const TransformedDataset dataset(Images(), usual());
  const DataLoader loader(dataset, {.batch_size = 5});
  const at::Tensor batch = *loader.begin();
  for (int64_t i = 0; i < 5; ++i) EXPECT_TRUE(batch[i].equal(dataset.get(i)));
}

TEST(TransformedDataset, ASampleThatCannotBeReadIsNamedOrLeftOut) {
  const NumberedPictures torn{.unreadable = 8};
  EXPECT_EQ(
      error_text<c10::Error>([&] { transformed_batches_of(TransformedDataset(torn, usual()), {.num_workers = 1}); }),
      error_text<c10::Error>([&] {
        const auto plain = [](const at::Tensor& image, SampleRandom&) { return image; };
        transformed_batches_of(TransformedDataset(torn, plain), {.num_workers = 1});
      }));
  const Batches batches = transformed_batches_of(TransformedDataset(torn, usual()), {.skip_unreadable = true});
  EXPECT_TRUE(batches.labels[1].equal(at::tensor({60, 70, 90, 100, 110}, at::kLong)));
  EXPECT_TRUE(batches.images[1][2].equal(TransformedDataset(torn, usual()).get(9).first));
  EXPECT_EQ(batches.images[1].size(0), 5);
}

TEST(TransformedDataset, ATransformThatFailsNamesItsSample) {
  const TransformedDataset dataset(LabeledRows(), Compose({RandomCrop(13), ToTensor()}));
  const DataLoader loader(dataset, {.batch_size = 6, .num_workers = 1});
  const std::string text = error_text<c10::ValueError>([&] { (void)loader.begin(); });
  EXPECT_NE(text.find("sample 0"), std::string::npos) << text;
  EXPECT_NE(text.find("Required crop size (13, 13) is larger than input image size (12, 14)"), std::string::npos)
      << text;
}

TEST(TransformedDataset, ImagesOfOtherSizesAreTheErrorOfCollate) {
  const NumberedPictures uneven{.odd_one = 3};
  EXPECT_EQ(error_text<c10::Error>([&] { transformed_batches_of(TransformedDataset(uneven, Compose({ToTensor()}))); }),
            "stack expects each tensor to be equal size, but got [3, 12, 12] at entry 0 and [3, 13, 12] at entry 3");
}

TEST(TransformedDataset, ImagesOfTwoTypesAreJoinedAsCollateDoes) {
  const auto some_double = [](const at::Tensor& image, SampleRandom& random) {
    return random.chance(0.5) ? image.to(at::kDouble) / 255 : image;
  };
  const TransformedDataset dataset(NumberedPictures(), Compose({some_double, ToTensor()}));
  const Batches batches = transformed_batches_of(dataset);
  std::vector<at::Tensor> images;
  for (int64_t i = 6; i < 12; ++i) images.push_back(dataset.get(i).first);
  EXPECT_TRUE(batches.images[1].equal(at::stack(images)));
  EXPECT_EQ(batches.images[1].scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace cohort::data
