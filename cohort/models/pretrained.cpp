#include "cohort/models/pretrained.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/checkpoint/state/module_names.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/files/tensors/elements/shown_text.h"
#include "cohort/models/pretrainable.h"
#include "cohort/models/weight_file.h"

namespace cohort::models {
namespace {

using checkpoint::StateDict;
using torch::nn::Module;

constexpr size_t kMaxNamed = 5;
constexpr size_t kMaxPairs = 400;
constexpr size_t kMaxHints = 3;

// A model, and the weights that are adapted to it.
struct Fitting {
  Module& model;
  std::vector<checkpoint::detail::ModuleTensor> own;
  StateDict weights;
  std::vector<std::string> notes;

  const at::Tensor* find_own(const std::string& name) const {
    const auto found = std::find_if(own.begin(), own.end(), [&](const auto& each) { return each.name == name; });
    return found == own.end() ? nullptr : &found->tensor;
  }
  void drop(const std::string& name) {
    if (weights.contains(name)) weights.erase(name);
  }
};

std::shared_ptr<Module> find_layer(const Module& model, const std::string& name) {
  const auto modules = model.named_modules("", /*include_self=*/false);
  const auto* const found = modules.find(name);
  return found ? *found : nullptr;
}

void check_layer(const Module& model, const std::string& name, const char* option) {
  const auto layer = find_layer(model, name);
  if (layer && (layer->as<torch::nn::Linear>() || layer->as<torch::nn::Conv2d>())) return;
  const auto all = model.named_modules("", /*include_self=*/false).keys();
  TORCH_CHECK_VALUE(false, "[cohort] load_pretrained: option ", option, ": the model has no layer \"", name, "\"",
                    layer ? " of type Linear or Conv2d" : base::did_you_mean(name, all));
}

void init_classifier(Module& model, const std::string& name) {
  auto* const known = dynamic_cast<Pretrainable*>(&model);
  if (known && known->classifier_name() == name) return known->init_classifier();
  const auto layer = find_layer(model, name);
  if (auto* const linear = layer->as<torch::nn::Linear>()) return linear->reset_parameters();
  layer->as<torch::nn::Conv2d>()->reset_parameters();
}

// Returns whether the classifier is newly initialized.
bool fit_classifier(Fitting& fitting, const std::string& name) {
  const at::Tensor* const own = fitting.find_own(name + ".weight");
  const at::Tensor* const given = fitting.weights.find(name + ".weight");
  if (!own && !given) return false;
  const bool is_of_this_kind =
      own && given && given->dim() == own->dim() && given->sizes().slice(1) == own->sizes().slice(1);
  if (own && given && (!is_of_this_kind || given->size(0) == own->size(0))) return false;
  const std::string reason = !given ? "newly initialized: the file has none"
                             : !own ? "left out: the model has no classifier"
                                    : c10::str("newly initialized: the file's is for ", given->size(0),
                                               " classes, the model's for ", own->size(0));
  fitting.notes.push_back("\"" + name + "\": " + reason);
  fitting.drop(name + ".weight");
  fitting.drop(name + ".bias");
  return own != nullptr;
}

// Like timm: for one channel, sums the weights up, as for a gray image in all three channels; for other numbers, repeats the
// channels in turn.
void fit_first_convolution(Fitting& fitting, const std::string& name) {
  const at::Tensor* const own = fitting.find_own(name);
  at::Tensor* const given = fitting.weights.find(name);
  if (!own || !given || own->dim() != 4 || given->dim() != 4) return;
  const int64_t wanted = own->size(1), channels = given->size(1);
  const bool differs_there_only =
      wanted != channels && own->size(0) == given->size(0) && own->sizes().slice(2) == given->sizes().slice(2);
  if (!differs_there_only || channels == 0) return;
  const at::Tensor values = given->to(at::kFloat);
  const double scale = static_cast<double>(channels) / static_cast<double>(wanted);
  const at::Tensor fitted =
      wanted == 1 ? values.sum(1, /*keepdim=*/true)
                  : values.repeat({1, (wanted + channels - 1) / channels, 1, 1}).narrow(1, 0, wanted).mul(scale);
  fitting.notes.push_back(c10::str("\"", name, "\": ", wanted == 1 ? "summed up" : "repeated", " from ", channels,
                                   " channels to ", wanted));
  *given = fitted.to(given->scalar_type());
}

// Returns `5: "a", "b", "c", "d", "e"`, or `7: "a", "b", "c", "d", "e" and 2 more`.
std::string counted_list(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxNamed);
  std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown));
  for (std::string& name : first) name = files::shortened(std::move(name));
  const std::string list = base::quoted_list(first);
  const std::string rest = names.size() > shown ? c10::str(" and ", names.size() - shown, " more") : "";
  return c10::str(names.size(), ": ", list, rest);
}

// Finds typing errors, not the names of another model.
std::string near_names(const PretrainedReport& keys) {
  if (keys.missing_keys.size() * keys.unexpected_keys.size() > kMaxPairs) return "";
  std::string text;
  size_t count = 0;
  for (const std::string& name : keys.unexpected_keys) {
    const auto near = base::closest_match(name, keys.missing_keys);
    if (!near || ++count > kMaxHints) continue;
    text += "\n  hint: the file's \"" + files::shortened(name) + "\" may be the model's \"" + *near + "\"";
  }
  return text;
}

std::string shape_problems(const Fitting& fitting) {
  std::vector<std::string> problems;
  for (const auto& each : fitting.own) {
    const at::Tensor* const given = fitting.weights.find(each.name);
    if (!given || given->sizes() == each.tensor.sizes()) continue;
    if (checkpoint::detail::is_old_scalar(given->sizes(), each.tensor.sizes())) continue;
    problems.push_back(c10::str("\n  \"", each.name, "\" has shape ", given->sizes(), " in the file, ",
                                each.tensor.sizes(), " in the model"));
  }
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), kMaxNamed); ++i) text += problems[i];
  if (problems.size() > kMaxNamed) text += c10::str("\n  and ", problems.size() - kMaxNamed, " more of other shapes");
  return text;
}

// Old files lack such buffers.
bool may_be_missing(const std::string& name) { return name.ends_with("num_batches_tracked"); }

void check_fit(const Fitting& fitting, const std::string& classifier_begins_anew, const LoadPretrainedOptions& options,
               PretrainedReport* report) {
  for (const auto& each : fitting.own) {
    const bool begins_anew = !classifier_begins_anew.empty() && each.name.starts_with(classifier_begins_anew + ".");
    if (begins_anew || fitting.weights.contains(each.name) || may_be_missing(each.name)) continue;
    report->missing_keys.push_back(each.name);
  }
  for (const auto& item : fitting.weights) {
    if (!fitting.find_own(item.key())) report->unexpected_keys.push_back(item.key());
  }
  std::string text = shape_problems(fitting);
  bool is_about_names = false;
  if (options.strict && !report->unexpected_keys.empty()) {
    text = "\n  the model does not have " + counted_list(report->unexpected_keys) + text;
    is_about_names = true;
  }
  if (options.strict && !report->missing_keys.empty()) {
    text = "\n  the file does not have " + counted_list(report->missing_keys) + text;
    is_about_names = true;
  }
  if (text.empty()) return;
  if (is_about_names) text += near_names(*report) + "\n  hint: set strict = false to allow different names";
  TORCH_CHECK(false, "[cohort] load_pretrained: ", report->source, " does not fit the model:", text);
}

}  // namespace

std::string PretrainedReport::text() const {
  std::string text = c10::str(num_tensors, " tensors of ", source);
  for (const std::string& note : notes) text += "\n  " + note;
  if (!missing_keys.empty()) text += "\n  the file does not have " + counted_list(missing_keys);
  if (!unexpected_keys.empty()) text += "\n  the model does not have " + counted_list(unexpected_keys);
  return text;
}

PretrainedReport load_pretrained(Module& model, const std::string& path, const LoadPretrainedOptions& options) {
  if (options.classifier) check_layer(model, *options.classifier, "classifier");
  if (options.first_convolution) check_layer(model, *options.first_convolution, "first_convolution");
  const c10::NoGradGuard no_grad;
  Fitting fitting{.model = model, .own = checkpoint::detail::tensors_of(model), .weights = StateDict(), .notes = {}};
  checkpoint::detail::Names names;
  for (const auto& each : fitting.own) names.insert(each.name);
  auto file = comm::or_throw(read_weight_file(path, names, options.use_ema), "load_pretrained");
  PretrainedReport report{.source = "\"" + path + "\""};
  if (!file.nested_in.empty()) report.source += ", its \"" + file.nested_in + "\",";

  const auto* const known = dynamic_cast<const Pretrainable*>(&model);
  fitting.weights = std::move(file.weights);
  if (known) fitting.weights = known->adapted_weights(std::move(fitting.weights), &fitting.notes);
  const std::string classifier = options.classifier.value_or(known ? known->classifier_name() : "");
  const bool begins_anew = !classifier.empty() && fit_classifier(fitting, classifier);
  const std::string first = options.first_convolution.value_or(known ? known->first_convolution_name() : "");
  if (!first.empty()) fit_first_convolution(fitting, first + ".weight");

  check_fit(fitting, begins_anew ? classifier : "", options, &report);
  checkpoint::load_state_dict(model, fitting.weights, {.strict = false});
  if (begins_anew) init_classifier(model, classifier);
  report.num_tensors = static_cast<int64_t>(fitting.weights.size() - report.unexpected_keys.size());
  report.notes = std::move(fitting.notes);
  base::log_info("load_pretrained: " + report.text());
  return report;
}

}  // namespace cohort::models
