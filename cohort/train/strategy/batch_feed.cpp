#include "cohort/train/strategy/batch_feed.h"

#include "cohort/data/samplers/elastic_distributed_sampler.h"

namespace cohort::train {

BatchFeed::~BatchFeed() = default;

std::vector<at::Tensor> BatchFeed::tensors() {
  std::vector<at::Tensor> found;
  for_each_tensor([&](at::Tensor& tensor) { found.push_back(tensor); });
  return found;
}

int64_t BatchFeed::batch_size() {
  const auto found = tensors();
  return found.empty() || found.front().dim() == 0 ? 1 : found.front().size(0);
}

void shard_samples(BatchFeed& feed, const FeedSettings& settings, SampleSharding sharding) {
  auto options = feed.options();
  const auto num_samples = feed.num_samples();
  const bool has_own_order = options.sampler || options.batch_sampler || options.generator.has_value();
  if (settings.shards_samples && num_samples &&
      (!has_own_order || (settings.world_size > 1 && !options.sampler && !options.batch_sampler))) {
    data::ElasticDistributedSamplerOptions sampler{.num_replicas = settings.world_size,
                                                   .rank = settings.rank,
                                                   .shuffle = options.shuffle,
                                                   .seed = settings.seed,
                                                   .remainder = data::Remainder::kKeep};
    if (sharding == SampleSharding::kEqually)
      sampler.remainder = options.drop_last ? data::Remainder::kDrop : data::Remainder::kPad;
    options.sampler = std::make_shared<data::ElasticDistributedSampler>(*num_samples, sampler);
    options.shuffle = false;
  }
  if (!options.device && !settings.device.is_cpu()) options.device = settings.device;
  feed.set_options(std::move(options));
}

bool shards_remaining_samples(const BatchFeed& feed) {
  return !feed.options().batch_sampler &&
         dynamic_cast<const data::ElasticDistributedSampler*>(feed.options().sampler.get()) != nullptr;
}

}  // namespace cohort::train
