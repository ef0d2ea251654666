// Prints train_gpt's report: the held-out loss beside simpler models, and a text by the model.
#pragma once

#include <ATen/Functions.h>
#include <cohort/data/loader/data_loader.h>
#include <cohort/models/gpt.h>
#include <cohort/train/text_split.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "ngram.h"
#include "settings.h"

namespace gpt {

inline double ngram_loss(int order, const cohort::train::TextSubset& text, const cohort::train::TextSubset& held_out) {
  NgramModel model(order);
  for (const auto& stretch : text.stretches(/*history=*/0)) model.fit(stretch.text);
  double sum = 0.0;
  for (const auto& stretch : held_out.stretches(order - 1)) {
    sum += model.loss(stretch.text, stretch.first_target, stretch.text.size());
  }
  return sum / static_cast<double>(held_out.num_targets());
}

inline void print_sample(cohort::models::GPT& net, const Settings& s) {
  std::vector<int64_t> tokens;
  for (const unsigned char byte : s.prompt) tokens.push_back(byte);
  const at::Tensor prompt = at::tensor(tokens, at::kLong).view({1, -1});
  const at::Tensor text = net->generate(prompt, {.max_new_tokens = s.sample_bytes,
                                                 .temperature = s.temperature,
                                                 .generator = cohort::data::make_generator(s.seed)});
  std::string printable;
  for (const int64_t byte : at::ArrayRef<int64_t>(text.const_data_ptr<int64_t>(), text.numel())) {
    const bool is_shown = byte == '\n' || byte == '\t' || (byte >= ' ' && byte <= '~');
    printable += is_shown ? static_cast<char>(byte) : '?';
  }
  std::printf("\na text by the model, after the prompt (%zu bytes)\n----\n%s\n----\n", s.prompt.size(),
              printable.c_str());
}

// The n-gram models count the same training bytes and predict the same held-out bytes, always with their full context; the GPT
// begins every window without context.
inline void report(cohort::models::GPT& net, double loss, const cohort::train::TextSubset& text,
                   const cohort::train::TextSubset& held_out, const Settings& s) {
  std::printf("\nheld-out loss in nats per byte, over %ld bytes of files that were not trained on\n",
              held_out.num_targets());
  std::printf("  unigram              %.4f\n", ngram_loss(1, text, held_out));
  std::printf("  interpolated 4-gram  %.4f\n", ngram_loss(4, text, held_out));
  std::printf("  this GPT             %.4f  (%.2f M parameters, %ld steps)\n", loss,
              static_cast<double>(net->num_parameters()) / 1e6, s.steps);
  print_sample(net, s);
  std::printf("\ncheckpoints: %s\n", s.checkpoint.c_str());
}

}  // namespace gpt
