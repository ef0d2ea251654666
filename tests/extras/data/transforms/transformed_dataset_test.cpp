#include "cohort/extras/data/transforms/transformed_dataset.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/extras/data/augmentation/mixup.h"
#include "cohort/extras/data/transforms/crop.h"
#include "cohort/extras/data/transforms/flip.h"
#include "cohort/extras/data/transforms/to_tensor.h"
#include "tests/data/error_text.h"
#include "tests/extras/data/transforms/images.h"

namespace cohort::data {
namespace {

using test::error_text;
using test::noise;

struct Pictures {
  int64_t size() const { return 20; }
  std::pair<at::Tensor, int64_t> get(int64_t index) const { return {noise(3, 12, 12, index), index}; }
};

at::Tensor epoch_of(const TransformedDataset<Pictures>& dataset, int num_workers) {
  const DataLoader loader(dataset, {.batch_size = 3, .num_workers = num_workers});
  std::vector<at::Tensor> images;
  for (auto& [image, label] : loader) images.push_back(image.sum({1, 2, 3}));
  return at::cat(images);
}

TEST(TransformedDataset, DependsOnSeedEpochAndIndexButNotOnWorkers) {
  const Compose transform({RandomCrop(8), RandomHorizontalFlip(), ToTensor()});
  const TransformedDataset dataset(Pictures(), transform, {.seed = 5});
  const at::Tensor first = epoch_of(dataset, 0);
  for (const int num_workers : {0, 1, 2, 5}) EXPECT_TRUE(epoch_of(dataset, num_workers).equal(first));
  dataset.set_epoch(1);
  const at::Tensor second = epoch_of(dataset, 2);
  EXPECT_GT(second.ne(first).sum().item<int64_t>(), 15);
  EXPECT_TRUE(epoch_of(dataset, 3).equal(second));
  dataset.set_epoch(0);
  EXPECT_TRUE(epoch_of(dataset, 3).equal(first));
  EXPECT_GT(epoch_of(TransformedDataset(Pictures(), transform, {.seed = 6}), 0).ne(first).sum().item<int64_t>(), 15);
}

TEST(TransformedDataset, ACopyInALoaderKnowsTheEpoch) {
  const TransformedDataset dataset(Pictures(), Compose({RandomCrop(8)}));
  const DataLoader loader(dataset, {.batch_size = 20});
  const at::Tensor first = (*loader.begin()).first;
  dataset.set_epoch(1);
  EXPECT_FALSE((*loader.begin()).first.equal(first));
  EXPECT_EQ(loader.dataset().epoch(), 1);
}

// By the numbers of the pictures, whatever the order.
at::Tensor crops_in(const DataLoader<TransformedDataset<Pictures>>& loader) {
  at::Tensor sums = at::zeros({20});
  for (auto& [image, label] : loader) sums.index_put_({label}, image.to(at::kFloat).sum({1, 2, 3}));
  return sums;
}

TEST(TransformedDataset, EachEpochOfALoaderHasOtherCrops) {
  const Compose transform({RandomCrop(8), ToTensor()});
  const auto sampler =
      std::make_shared<DistributedSampler>(20, DistributedSamplerOptions{.num_replicas = 1, .rank = 0});
  const TransformedDataset dataset(Pictures(), transform);
  const DataLoader loader(dataset, {.batch_size = 4, .sampler = sampler});
  sampler->set_epoch(1);
  const at::Tensor first = crops_in(loader);
  sampler->set_epoch(2);
  EXPECT_GT(crops_in(loader).ne(first).sum().item<int64_t>(), 15);
  sampler->set_epoch(1);
  EXPECT_TRUE(crops_in(loader).equal(first));
  dataset.set_epoch(1);  // from here on the program says it
  sampler->set_epoch(2);
  EXPECT_TRUE(crops_in(loader).equal(first));
  const DataLoader shuffled(TransformedDataset(Pictures(), transform), {.batch_size = 4, .shuffle = true});
  const at::Tensor once = crops_in(shuffled);
  EXPECT_GT(crops_in(shuffled).ne(once).sum().item<int64_t>(), 15);
  shuffled.set_epoch(0);  // from here on the loader counts on
  EXPECT_TRUE(crops_in(shuffled).equal(once));
  EXPECT_GT(crops_in(shuffled).ne(once).sum().item<int64_t>(), 15);
}

TEST(TransformedDataset, GivesTheRestAsItIs) {
  const auto twice = [](const at::Tensor& image, SampleRandom&) { return image * 2; };
  const TransformedDataset rows(TensorDataset(at::arange(4), at::arange(4), at::arange(4)), twice);
  const auto [input, same, other] = rows.get(3);
  EXPECT_EQ(input.item<int64_t>() * 100 + same.item<int64_t>() * 10 + other.item<int64_t>(), 633);
  const TransformedDataset pairs(Pictures(), twice);
  EXPECT_TRUE(pairs.get(2).first.equal(noise(3, 12, 12, 2) * 2));
  EXPECT_EQ(pairs.get(2).second, 2);
  const auto label = [](const std::pair<at::Tensor, int64_t>& example, SampleRandom&) { return example.second; };
  EXPECT_EQ(TransformedDataset(Pictures(), label).get(7), 7);
  EXPECT_EQ(pairs.size(), 20);
}

// No batch sampler in its way: a loader asks for the whole batch.
TEST(TransformedDataset, ABatchWithoutSamplesMessage) {
  const TransformedDataset dataset(TensorDataset(at::arange(4), at::arange(4)), Compose({}));
  detail::ReadProgress progress(nullptr);
  EXPECT_EQ(error_text<c10::IndexError>([&] { dataset.get_batch({}, progress); }),
            "list index out of range\n  hint: leave batches without samples out of the batch sampler, or give the "
            "DataLoader a collate function of your own");
  EXPECT_EQ(error_text<c10::ValueError>([] { TransformedDataset(std::shared_ptr<Pictures>{}, Compose({})); }),
            "[cohort] TransformedDataset needs a dataset, but got a null pointer");
}

TEST(Compose, GoesInOrder) {
  const auto add = [](const at::Tensor& image, SampleRandom&) { return image + 3; };
  const auto twice = [](const at::Tensor& image, SampleRandom&) { return image * 2; };
  SampleRandom random(0, 0, 0);
  EXPECT_EQ(Compose({add, twice})(at::tensor(1), random).item<int64_t>(), 8);
  EXPECT_EQ(Compose({})(at::tensor(1), random).item<int64_t>(), 1);
  int changed = 0;
  int added = 0;
  int doubled = 0;
  int kept = 0;
  const auto keep = [](const at::Tensor& image, SampleRandom&) { return image; };
  for (int i = 0; i < 400; ++i) {
    changed += RandomApply({add, twice}, 0.25)(at::tensor(1), random).item<int64_t>() == 8 ? 1 : 0;
    const auto chosen = RandomChoice({add, twice, keep})(at::tensor(1), random).item<int64_t>();
    added += chosen == 4 ? 1 : 0;
    doubled += chosen == 2 ? 1 : 0;
    kept += chosen == 1 ? 1 : 0;
  }
  EXPECT_NEAR(changed, 100, 40);
  EXPECT_NEAR(added, 133, 40);
  EXPECT_NEAR(doubled, 133, 40);
  EXPECT_NEAR(kept, 133, 40);
}

TEST(MixUp, MixesWithTheOneBefore) {
  const at::Tensor images = at::tensor({0.0F, 1.0F, 3.0F}).view({3, 1, 1, 1}).expand({3, 1, 4, 4});
  const at::Tensor labels = at::tensor({0, 1, 2}, at::kLong);
  int num_mixed = 0;
  for (int i = 0; i < 20; ++i) {
    SampleRandom random(0, 0, i);
    const auto [mixed, shares] = MixUp({.num_classes = 4})(images, labels, random);
    const double share = shares[1][1].item<double>();
    EXPECT_NEAR(shares[1][0].item<double>(), 1 - share, 1e-6);
    EXPECT_NEAR(shares[0][2].item<double>(), 1 - share, 1e-6);
    EXPECT_NEAR(mixed[0][0][2][3].item<double>(), 3 * (1 - share), 1e-6);
    EXPECT_NEAR(mixed[2][0][0][0].item<double>(), 3 * share + (1 - share), 1e-6);
    EXPECT_EQ(shares.sizes(), at::IntArrayRef({3, 4}));
    num_mixed += share > 0.1 && share < 0.9 ? 1 : 0;
  }
  EXPECT_GE(num_mixed, 8);  // of shares that are drawn evenly from 0 to 1, as alpha is 1
}

TEST(CutMix, SharesAreThoseOfTheArea) {
  const at::Tensor images = at::tensor({0, 1, 3}, at::kByte).view({3, 1, 1, 1}).expand({3, 1, 10, 12});
  const at::Tensor labels = at::tensor({0, 1, 2}, at::kLong);
  bool has_cut = false;
  for (int i = 0; i < 20; ++i) {
    SampleRandom random(0, 0, i);
    const auto [mixed, shares] = CutMix({.num_classes = 3})(images, labels, random);
    const at::Tensor cut = mixed[1][0].eq(0);
    EXPECT_NEAR(shares[1][0].item<double>(), cut.to(at::kDouble).mean().item<double>(), 1e-6);
    EXPECT_TRUE(mixed[0][0].eq(3).equal(cut));
    EXPECT_EQ(cut.sum().item<int64_t>(), cut.any(0).sum().item<int64_t>() * cut.any(1).sum().item<int64_t>());
    has_cut = has_cut || (cut.any().item<bool>() && !cut.all().item<bool>());
  }
  EXPECT_TRUE(has_cut);
}

TEST(MixUp, MistakesMessages) {
  SampleRandom random(0, 0, 0);
  EXPECT_EQ(error_text<c10::ValueError>([] { MixUp({.alpha = 0}); }), "[cohort] MixUp needs alpha > 0, but got 0");
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              MixUp({.num_classes = 3})(at::zeros({2, 1, 1, 1}), at::zeros({3}, at::kLong), random);
            }),
            "[cohort] MixUp needs a label for each of 2 images, but got labels [3]");
  EXPECT_EQ(
      error_text<c10::ValueError>([&] {
        CutMix({})(at::zeros({2, 1, 1, 1}), at::zeros({2}, at::kLong), random);
      }),
      "[cohort] CutMix needs labels int64 [batch] and num_classes, or floating [batch, classes], but got Long [2] and "
      "no num_classes");
  EXPECT_EQ(error_text<c10::ValueError>([] { MixUp({.num_classes = 0}); }),
            "[cohort] MixUp needs num_classes >= 1, but got 0");
}

}  // namespace
}  // namespace cohort::data
