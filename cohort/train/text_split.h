/// split_text: splits the windows of a text into those to train on and those to hold out, such that the held-out loss is honest.
///
/// Holds out whole files, chosen by their content, not by their position, so the model is tested on text of which it has seen no
/// part. Leaves out files with the same content as another, so that no copy of a held-out file is trained on. A window that
/// touches files of both sides belongs to neither. If files are too few or too unequal for that, holds out the last part of the
/// text.
///
/// Pure: the same text and fraction give the same windows on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/data/datasets/token_dataset.h"
#include "cohort/export.h"

namespace cohort::train {

/// One side of the split, a subset of the windows of a TokenDataset, itself a dataset for data::DataLoader.
class COHORT_API TextSubset {
 public:
  using Example = data::TokenDataset::Example;

  TextSubset(std::shared_ptr<const data::TokenDataset> dataset, std::vector<int64_t> windows);

  Example get(int64_t index) const;
  Example get_batch(const std::vector<int64_t>& indices) const;
  int64_t size() const { return static_cast<int64_t>(windows_.size()); }
  /// Bytes to predict: one per position of every window.
  int64_t num_targets() const { return size() * dataset_->options().context_length; }

  /// Returns at most `count` windows, evenly spaced over this subset.
  TextSubset evenly_spaced(int64_t count) const;
  /// Returns a rank's own windows: rank, rank + world_size, ...
  TextSubset shard(int rank, int world_size) const;
  /// Text of neighboring windows together, with each byte once, after up to `history` bytes of the text before it.
  struct Stretch {
    std::string text;
    /// The index of the first byte to predict; the bytes before it are context.
    size_t first_target = 0;
  };
  std::vector<Stretch> stretches(int64_t history) const;

 private:
  std::shared_ptr<const data::TokenDataset> dataset_;
  std::vector<int64_t> windows_;
};

using TextPart [[deprecated("use TextSubset")]] = TextSubset;

struct TextSplit {
  TextSubset train;
  TextSubset held_out;
  int64_t num_files = 0;
  /// Files left out because another has the same content.
  int64_t num_duplicates = 0;
};

/// Throws c10::ValueError unless 0 < held_out_fraction < 1 and both subsets hold a window.
COHORT_API TextSplit split_text(const std::shared_ptr<const data::TextCorpus>& corpus, int64_t context_length,
                                double held_out_fraction);

}  // namespace cohort::train
