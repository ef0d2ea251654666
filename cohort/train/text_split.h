/// split_text: which windows of a text to train on and which to hold out, so that the held-out loss is honest.
///
/// Whole files are held out, chosen by their content, not by their place: what is tested is text the model has not seen
/// any part of. A file whose content is there already is left out, so no copy of a held-out file is trained on.
/// A window that touches files of both sides belongs to none. Where files are too few or too unequal for that, the last
/// part of the text is held out.
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

/// One part of a text: chosen windows of a TokenDataset, itself a dataset for data::DataLoader.
class COHORT_API TextPart {
 public:
  using Example = data::TokenDataset::Example;

  TextPart(std::shared_ptr<const data::TokenDataset> dataset, std::vector<int64_t> windows);

  Example get(int64_t index) const;
  Example get_batch(const std::vector<int64_t>& indices) const;
  int64_t size() const { return static_cast<int64_t>(windows_.size()); }
  /// Bytes to predict: one per position of every window.
  int64_t num_targets() const { return size() * dataset_->options().context_length; }

  /// At most `count` windows, evenly spaced over this part.
  TextPart evenly_spaced(int64_t count) const;
  /// Every rank's own windows: rank, rank + world_size, ...
  TextPart share(int rank, int world_size) const;
  /// The text of neighbouring windows together, each stretch once, with up to `history` bytes of what comes before it.
  struct Stretch {
    std::string text;
    /// Where the bytes to predict begin; the ones before are context.
    size_t first_target = 0;
  };
  std::vector<Stretch> stretches(int64_t history) const;

 private:
  std::shared_ptr<const data::TokenDataset> dataset_;
  std::vector<int64_t> windows_;
};

struct TextSplit {
  TextPart train;
  TextPart held_out;
  int64_t num_files = 0;
  /// Files left out because another has the same content.
  int64_t num_duplicates = 0;
};

/// Throws c10::ValueError unless 0 < held_out_fraction < 1 and both parts hold a window.
COHORT_API TextSplit split_text(const std::shared_ptr<const data::TextCorpus>& corpus, int64_t context_length,
                                double held_out_fraction);

}  // namespace cohort::train
