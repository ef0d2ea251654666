/// Pretrainable: a model's information for reading its files of weights (pretrained.h).
#pragma once

#include <string>
#include <vector>

#include "cohort/checkpoint/optimizer/named_tensors.h"
#include "cohort/export.h"

namespace cohort::models {

class COHORT_API Pretrainable {
 public:
  virtual ~Pretrainable() = default;

  /// The name of the layer that makes classes from features, such as "fc", whose parameters are "fc.weight" and "fc.bias"; also
  /// for a model that was made without it. Empty if this kind of model has no such layer.
  virtual std::string classifier_name() const { return ""; }
  /// Initializes that layer. Called if a file has no weights that fit.
  virtual void init_classifier() {}
  /// The name of the convolution on the image, such as "conv1"; empty without one.
  virtual std::string first_convolution_name() const { return ""; }

  /// Returns the `weights` of a file with the names and shapes of this model, as far as known differences of other programs go.
  /// Appends a sentence to `notes` for each change that the user should know. Weights that do not fit are returned unchanged.
  virtual checkpoint::StateDict adapted_weights(checkpoint::StateDict weights, std::vector<std::string>* notes) const {
    static_cast<void>(notes);
    return weights;
  }
};

}  // namespace cohort::models
