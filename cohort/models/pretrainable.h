/// Pretrainable: what a model says about files of weights for it (pretrained.h).
#pragma once

#include <string>
#include <vector>

#include "cohort/checkpoint/state/named_tensors.h"
#include "cohort/export.h"

namespace cohort::models {

class COHORT_API Pretrainable {
 public:
  virtual ~Pretrainable() = default;

  /// Of the layer that makes classes from features, such as "fc", whose parameters are "fc.weight" and "fc.bias"; also of a model
  /// that was made without it. Empty: the kind of model has none.
  virtual std::string classifier_name() const { return ""; }
  /// Gives that layer new values. Called where a file has none that fit.
  virtual void init_classifier() {}
  /// Of the convolution that sees the image, such as "conv1"; empty: there is none.
  virtual std::string first_convolution_name() const { return ""; }

  /// `weights` of a file, under the names and in the shapes of this model, as far as somebody else's differ in a known way.
  /// Appends a sentence to `notes` for whatever the user should know. What does not fit stays as it is.
  virtual checkpoint::StateDict adapted_weights(checkpoint::StateDict weights, std::vector<std::string>* notes) const {
    static_cast<void>(notes);
    return weights;
  }
};

}  // namespace cohort::models
